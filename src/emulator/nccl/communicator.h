// One rank's end of a communicator: its peers, its registrations, and the thread that runs its collectives.
//
// One thread at a time may use it (NCCL's own rule, checked by Enter), except async_error and Abort.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_COMMUNICATOR_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/emulator/nccl/async_work.h"
#include "src/emulator/nccl/bootstrap.h"
#include "src/emulator/nccl/collective.h"
#include "src/emulator/nccl/driver.h"
#include "src/emulator/nccl/exchange.h"
#include "src/emulator/nccl/progress_queue.h"
#include "src/emulator/nccl/registration.h"

namespace commpool::internal::emulated_nccl {

struct ScaledSum {
  ncclDataType_t type;
  std::array<char, 8> scalar;
  const void* device_scalar;
};

// How ncclCommWindowRegister behaves where windows are not supported (src/dev_runtime.cc).
enum class WindowSupport { kSupported, kNullWindow, kLocalHandle };

class EmulatedCommunicator : public std::enable_shared_from_this<EmulatedCommunicator> {
 public:
  struct Place {
    int ranks = 1;
    int rank = 0;
    int device = 0;
    std::shared_ptr<AsyncWork> async = nullptr;  // of a nonblocking communicator
    const char* call = "ncclCommInitRank";       // for the log
  };

  // Joins the others; returns when all have. `*created` is set on success only.
  static ncclResult_t Create(const Place& place, const ncclUniqueId& id,
                             std::shared_ptr<EmulatedCommunicator>* created);

  EmulatedCommunicator(const Place& place, CUcontext context, Membership membership);
  ~EmulatedCommunicator();

  ncclComm_t handle() {
    return async_ != nullptr ? reinterpret_cast<ncclComm_t>(async_.get()) : reinterpret_cast<ncclComm_t>(this);
  }
  // Null for a blocking communicator.
  const std::shared_ptr<AsyncWork>& async() const { return async_; }
  // Whether a nonblocking communicator has its connections still to make (once).
  bool TakeFirstLaunch() { return async_ != nullptr && ranks_ > 1 && std::exchange(first_launch_, false); }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  CUcontext context() const { return context_; }
  // By Revoke or a shrink that aborts: it takes no collectives any more.
  bool stopped() const { return stopped_.load(); }
  ncclResult_t async_error() const { return async_error_.load(); }

  // Marks the calling thread as its user. False, and a report, while another thread is; Leave undoes a success.
  bool Enter(const char* call);
  void Leave();

  // Checks the request against this communicator, without doing anything.
  ncclResult_t Check(const CollectiveRequest& request) const;
  // Puts a checked request on its stream.
  ncclResult_t Launch(const CollectiveRequest& request);
  // The same for the sends and receives of one group, which run side by side.
  ncclResult_t Check(const char* call, const PeerTransfer& transfer) const;
  ncclResult_t LaunchTransfers(CUstream stream, std::vector<PeerTransfer> transfers);

  // Pre-multiplied sums, by the number that stands for them in calls on this communicator.
  ncclResult_t AddScaledSum(const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                            ncclRedOp_t* operation);
  ncclResult_t RemoveScaledSum(ncclRedOp_t operation);
  // Replaces the number of a pre-multiplied sum by ncclNumOps and the scalar. Built-in operations stay.
  ncclResult_t ResolveOperation(CollectiveRequest* request) const;

  ncclResult_t RegisterLocal(void* buffer, size_t bytes, void** handle);
  ncclResult_t DeregisterLocal(void* handle);
  // A window that MakeWindows makes, with all that were asked for before it. Where one fails those behind it wait for
  // the next such call: `window` is written then.
  struct WantedWindow {
    void* buffer = nullptr;
    size_t bytes = 0;
    int flags = 0;
    ncclWindow_t* window = nullptr;
  };
  void WantWindow(const WantedWindow& wanted);
  ncclResult_t MakeWindows();
  ncclResult_t DeregisterWindow(ncclWindow_t window);
  // The buffer that the window was registered with.
  ncclResult_t FindWindow(ncclWindow_t window, void** buffer);

  // Collective over this communicator: this rank's place in a new one, and the id that its members join by. No ranks
  // for a rank that has no colour.
  struct Child {
    int ranks = 0;
    int rank = 0;
    ncclUniqueId id = {};
  };
  ncclResult_t AgreeOnSplit(int color, int key, Child* child);
  // Collective over the ranks that stay.
  ncclResult_t AgreeOnShrink(const std::set<int>& excluded, int flags, Child* child);
  // `id` is null except on the rank that hands it out.
  ncclResult_t AgreeOnGrow(int ranks, const ncclUniqueId* id, Child* child);
  // Ends this rank's collectives. Communicators can still be made from this one.
  ncclResult_t Revoke();

  // Waits for the collectives that were launched; none may follow.
  ncclResult_t Finalize();
  // Finalizes, reports what is still registered, and releases everything.
  ncclResult_t Destroy();
  // Makes every wait of this communicator end; Abort follows.
  void Interrupt();
  // Releases everything at once; peers that wait for this rank fail.
  void Abort();

 private:
  friend void* RepeatCollective(void* context);
  friend void StartCollective(void* context, commpoolEmulatorOperation operation, const void* const* reads,
                              void* const* writes, double start_us);
  struct WindowMessage;

  void Run();
  void Execute(PendingCollective& pending);
  Status RunCollective(PendingCollective& pending, double* end_us);
  Status RunTransfers(PendingCollective& pending, double* end_us);
  struct Lane;
  Status RunLane(const Lane& lane, const PendingCollective& pending, double* start_us);
  Result<std::vector<CollectiveHeader>> Agree(PendingCollective& pending);
  void JoinClocks(const PendingCollective& pending, const std::vector<Message>& messages);
  bool IsStale(const PendingCollective& pending) const;
  void Fail(const Status& status, const std::string& what);

  CUresult Enqueue(std::unique_ptr<PendingCollective> pending, const commpoolEmulatorAccess& access);
  CUresult Capture(const PendingCollective& pending, const commpoolEmulatorAccess& access);

  CollectivePlan Plan(const CollectiveRequest& request, uint64_t sequence);
  CollectivePlan PlanTransfers(const CollectiveRequest& request) const;
  bool PlanSymmetric(const CollectiveRequest& request, CollectivePlan* plan) const;
  bool UseLocalRegistration(const CollectiveRequest& request, size_t bytes);
  void ImportRegistration(LocalRegistration& slot, const void* buffer, size_t bytes,
                          const commpoolEmulatorMapping& mapping);
  void LogOrdinary(const CollectiveRequest& request, size_t bytes, size_t result_bytes);
  ncclResult_t CheckBuffer(const char* name, const void* buffer, size_t bytes) const;

  ncclResult_t RegisterWindow(const WantedWindow& wanted);
  std::optional<WindowPlaceInRange> TakePlace(size_t bytes, int flags);
  static WindowPlaces PlacesOn(int device);
  // Why it would not reach the memory that it was planned for; empty where it does.
  std::string WhyStale(const CollectivePlan& plan, const CollectiveRequest& request) const;
  std::string WhyStale(const char* name, const PlaceInWindow& place, const void* buffer) const;
  LocalRegistration* AddLocal(void* buffer, size_t bytes);
  void DropLocal(LocalRegistration* slot);
  // `mapping` becomes what the window covers: several mappings where the release allows it.
  ncclResult_t CheckWindow(void* buffer, size_t bytes, commpoolEmulatorMapping* mapping) const;
  ncclResult_t CheckExtent(uintptr_t address, size_t bytes, commpoolEmulatorMapping* mapping) const;
  struct AgreedWindow {
    uint64_t largest_bytes = 0;         // of any rank
    std::string why_no_multicast = {};  // empty where no rank has a reason
  };
  ncclResult_t AgreeOnWindow(const WindowMessage& own, AgreedWindow* agreed);

  // Why NVLink multicast cannot be used: anywhere on this communicator, for this memory, for a local registration of
  // it.
  std::string WhyNoMulticast() const;
  std::string WhyNoMulticast(const commpoolEmulatorMapping& mapping) const;
  std::string WhyNoMulticastOfLocal(const void* buffer, size_t bytes, const commpoolEmulatorMapping& mapping) const;
  void BindMulticast(EmulatedWindow& window, std::string why_not);
  std::string MakeMulticast(EmulatedWindow& window) const;
  void UnbindMulticast(const EmulatedWindow& window) const;
  // Messages by rank on the calling thread's connections; empty for ranks that are no members. `call` names the
  // reason for the exchange; a rank that is in another call is reported.
  Result<std::vector<Message>> ExchangeControl(const char* call, const std::vector<int>& members, const Message& own);
  ncclResult_t FailControl(const char* call, const Status& status);
  std::vector<int> AllRanks() const;
  void Stop();
  void KeepMemoryOfWindows() const;
  void DropRegistrations();
  void ReportLeftovers() const;
  void JoinThread();

  const int ranks_;
  const int rank_;
  const int device_;
  const CUcontext context_;
  const std::shared_ptr<AsyncWork> async_;
  bool first_launch_ = true;
  const std::vector<PeerInfo> peers_;
  bool all_direct_ = true;  // every rank's device reaches every other's
  WindowSupport window_support_ = WindowSupport::kSupported;
  Mesh data_;     // the progress thread's
  Mesh control_;  // the calling thread's

  std::atomic<int> user_ = 0;  // the thread that is in a call
  int user_depth_ = 0;
  std::atomic<ncclResult_t> async_error_ = ncclSuccess;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> stopped_ = false;    // by Revoke, or a shrink that aborts: collectives end quietly
  std::atomic<bool> timed_out_ = false;  // a rank was waited for long enough already
  bool finalized_ = false;
  // A registration may end while a nonblocking communicator makes another in the background.
  mutable std::mutex registering_;
  RegistrationCache registrations_;
  CommunicatorWindows windows_;
  WindowPlaces places_;
  bool has_own_window_ = false;  // NCCL's
  std::deque<WantedWindow> wanted_windows_;
  uint64_t window_calls_ = 0;
  std::map<int, ScaledSum> scaled_sums_;
  int next_scaled_sum_ = 0;
  uint64_t agreed_ = 0;  // collectives of all ranks so far; the progress thread's
  ProgressQueue queue_;
  std::thread thread_;
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_COMMUNICATOR_H_
