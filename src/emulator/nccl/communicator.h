// One rank's part of a communicator: its peers, its registrations, and the thread that runs its collectives.
//
// Only one thread at a time may use it, as in NCCL; Enter checks that. Any thread may call async_error and Abort.
#pragma once

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
#include "src/emulator/nccl/own_memory.h"
#include "src/emulator/nccl/progress_queue.h"
#include "src/emulator/nccl/registration.h"
#include "src/emulator/nccl/window_records.h"

namespace commpool::internal::emulated_nccl {

// What ncclConfig_t says of a communicator.
struct Configuration {
  enum class Blocking { kYes, kNo } blocking = Blocking::kYes;
  // Which children share this communicator's memory. The parent's configuration decides, not the child's (src/init.cc).
  bool split_shares = false;
  bool shrink_shares = false;
  int cta_policy = NCCL_CTA_POLICY_DEFAULT;
};

struct ScaledSum {
  ncclDataType_t type;
  std::array<char, 8> scalar;
  const void* device_scalar;
};

// What ncclCommWindowRegister does where windows are not supported (src/dev_runtime.cc).
enum class WindowSupport { kSupported, kNullWindow, kLocalHandle };

// Owns the connections, the registrations and the progress thread. API functions find it by its handle and call it.
class EmulatedCommunicator : public std::enable_shared_from_this<EmulatedCommunicator> {
 public:
  struct Place {
    int ranks = 1;
    int rank = 0;
    int device = 0;
    Configuration configuration = {};
    std::shared_ptr<AsyncWork> async = nullptr;   // null for a blocking communicator
    const char* call = "ncclCommInitRank";        // for the log
    std::shared_ptr<OwnMemory> memory = nullptr;  // of the parent that it shares resources with
  };

  // Joins the others; returns when all ranks have joined. Sets `*created` only on success.
  static ncclResult_t Create(const Place& place, const ncclUniqueId& id,
                             std::shared_ptr<EmulatedCommunicator>* created);

  EmulatedCommunicator(const Place& place, CUcontext context, Membership membership, std::shared_ptr<OwnMemory> memory);
  ~EmulatedCommunicator();

  ncclComm_t handle() {
    return async_ != nullptr ? reinterpret_cast<ncclComm_t>(async_.get()) : reinterpret_cast<ncclComm_t>(this);
  }
  // Null for a blocking communicator.
  const std::shared_ptr<AsyncWork>& async() const { return async_; }
  // Returns true once for a nonblocking communicator: its first launch still has to make the connections.
  bool TakeFirstLaunch() { return async_ != nullptr && ranks_ > 1 && std::exchange(first_launch_, false); }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  const Configuration& configuration() const { return configuration_; }
  CUcontext context() const { return context_; }
  // After Revoke, or a shrink that aborts, it takes no more collectives.
  bool stopped() const { return stopped_.load(); }
  ncclResult_t async_error() const { return async_error_.load(); }

  // Marks the calling thread as the user. Returns false, with a report, while another thread is the user. Leave ends
  // it.
  bool Enter(const char* call);
  void Leave();

  // Checks the request against this communicator. Changes nothing.
  ncclResult_t Check(const CollectiveRequest& request) const;
  // Puts a checked request on its stream.
  ncclResult_t Launch(const CollectiveRequest& request);
  // Do the same for the sends and receives of one group, which run side by side.
  ncclResult_t Check(const char* call, const PeerTransfer& transfer) const;
  ncclResult_t LaunchTransfers(CUstream stream, std::vector<PeerTransfer> transfers);

  // Keep pre-multiplied sums. A number stands for each in calls on this communicator.
  ncclResult_t AddScaledSum(const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                            ncclRedOp_t* operation);
  ncclResult_t RemoveScaledSum(ncclRedOp_t operation);
  // Replaces the number of a pre-multiplied sum by ncclNumOps and the scalar. Keeps built-in operations.
  ncclResult_t ResolveOperation(CollectiveRequest* request) const;

  ncclResult_t RegisterLocal(void* buffer, size_t bytes, void** handle);
  ncclResult_t DeregisterLocal(void* handle);
  // A window to make. MakeWindows makes it after all that were asked for before. If one fails, those after it wait for
  // the next call, which then writes `window`.
  struct WantedWindow {
    void* buffer = nullptr;
    size_t bytes = 0;
    int flags = 0;
    ncclWindow_t* window = nullptr;
  };
  void WantWindow(const WantedWindow& wanted);
  ncclResult_t MakeWindows();
  ncclResult_t DeregisterWindow(ncclWindow_t window);
  // Gives the memory of the communicator back, and makes it again. Collective; each waits for all ranks.
  ncclResult_t Sleep();
  ncclResult_t Wake();
  // Null before the release that counts it. Children that share resources with their parent have the parent's.
  const std::shared_ptr<OwnMemory>& memory() const { return memory_; }
  // Refuses, with a report, while the memory is away. Whoever uses it then reads and writes nothing on hardware.
  ncclResult_t CheckAwake(const char* call) const;
  // Finds the buffer of a window.
  ncclResult_t FindWindow(ncclWindow_t window, void** buffer);

  // This rank's place in a new communicator, and the id that its members join by. It has no ranks if this rank has no
  // colour. The calls are collective over this communicator.
  struct Child {
    int ranks = 0;
    int rank = 0;
    ncclUniqueId id = {};
  };
  ncclResult_t AgreeOnSplit(int color, int key, Child* child);
  // Collective over the ranks that stay.
  ncclResult_t AgreeOnShrink(const std::set<int>& excluded, int flags, Child* child);
  // Only the rank that hands out the id passes it; the others pass null.
  ncclResult_t AgreeOnGrow(int ranks, const ncclUniqueId* id, Child* child);
  // Ends this rank's collectives. The program can still make communicators from this one.
  ncclResult_t Revoke();

  // Waits for the launched collectives. The program may launch none after this.
  ncclResult_t Finalize();
  // Finalizes, reports registrations that are left, and releases everything.
  ncclResult_t Destroy();
  // Ends every wait of this communicator. Call Abort next.
  void Interrupt();
  // Releases everything at once. Peers that wait for this rank get an error.
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
  struct PeerTransfers;
  Status RunWithPeer(const PeerTransfers& transfers, const PendingCollective& pending, double* start_us);
  Result<std::vector<CollectiveHeader>> Agree(PendingCollective& pending);
  void JoinClocks(const PendingCollective& pending, const std::vector<Message>& messages);
  bool IsStale(const PendingCollective& pending) const;
  void Fail(const Status& status, const std::string& what);

  CUresult Enqueue(std::unique_ptr<PendingCollective> pending, const commpoolEmulatorAccess& access);
  CUresult Capture(const PendingCollective& pending, const commpoolEmulatorAccess& access);

  CollectivePlan Plan(const CollectiveRequest& request, uint64_t sequence);
  CollectivePlan PlanTransfers(const CollectiveRequest& request) const;
  Route PlanRoute(const CollectiveRequest& request, CollectivePlan* plan) const;
  bool UseLocalRegistration(const CollectiveRequest& request, size_t bytes);
  void ImportRegistration(LocalRegistration& slot, const void* buffer, size_t bytes,
                          const commpoolEmulatorMapping& mapping);
  void LogOrdinary(const CollectiveRequest& request, size_t bytes, size_t result_bytes);
  ncclResult_t CheckBuffer(const char* name, const void* buffer, size_t bytes) const;

  ncclResult_t RegisterWindow(const WantedWindow& wanted);
  std::optional<WindowPlaceInRange> TakePlace(size_t bytes, int flags);
  void TakePlaceOfCopies();
  ncclWindow_t WriteRecord(const EmulatedWindow& window);
  static WindowPlaces PlacesOn(int device);
  // Says what is missing of the memory that collectives go through; empty if nothing is.
  std::string WhyNoMemory() const;
  // Says why the collective would not reach the memory that it was planned for; empty if it would.
  std::string WhyStale(const CollectivePlan& plan, const CollectiveRequest& request) const;
  // `offset`: in the communicator's range.
  std::string WhyStale(const char* name, const PlaceInWindow& place, uint64_t offset, const void* buffer) const;
  LocalRegistration* AddLocal(void* buffer, size_t bytes);
  void DropLocal(LocalRegistration* slot);
  // Fills `mapping` with what the window covers: several mappings if the release allows that.
  ncclResult_t CheckWindow(void* buffer, size_t bytes, commpoolEmulatorMapping* mapping) const;
  ncclResult_t CheckExtent(uintptr_t address, size_t bytes, commpoolEmulatorMapping* mapping) const;
  struct AgreedWindow {
    uint64_t largest_bytes = 0;         // the largest of any rank
    std::string why_no_multicast = {};  // empty if no rank has a reason
  };
  ncclResult_t AgreeOnWindow(const WindowMessage& own, AgreedWindow* agreed);

  // Say why NVLink multicast cannot be used: anywhere on this communicator, for this memory, or for a local
  // registration of this memory.
  std::string WhyNoMulticast() const;
  std::string WhyNoMulticast(const commpoolEmulatorMapping& mapping) const;
  std::string WhyNoMulticastOfLocal(const void* buffer, size_t bytes, const commpoolEmulatorMapping& mapping) const;
  void BindMulticast(EmulatedWindow& window, std::string why_not);
  std::string MakeMulticast(EmulatedWindow& window) const;
  void UnbindMulticast(const EmulatedWindow& window) const;
  // Exchanges messages on the calling thread's connections. Returns them by rank; they are empty for ranks that are not
  // members. `call` names the reason; it reports a rank that is in another call.
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
  const Configuration configuration_;
  const std::shared_ptr<OwnMemory> memory_;
  std::atomic<int> not_imported_ = -1;  // a peer whose memory did not come back
  const std::shared_ptr<AsyncWork> async_;
  bool first_launch_ = true;
  const std::vector<PeerInfo> peers_;
  bool all_direct_ = true;  // every rank's device reaches every other rank's
  WindowSupport window_support_ = WindowSupport::kSupported;
  Mesh data_;     // for the progress thread
  Mesh control_;  // for the calling thread

  std::atomic<int> user_ = 0;  // the thread that is in a call
  int user_depth_ = 0;
  std::atomic<ncclResult_t> async_error_ = ncclSuccess;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> stopped_ = false;    // set by Revoke, or a shrink that aborts: collectives then end quietly
  std::atomic<bool> timed_out_ = false;  // a wait for a rank has run out already
  bool finalized_ = false;
  // A registration may end while a nonblocking communicator makes another one in the background.
  mutable std::mutex registering_;
  RegistrationCache registrations_;
  CommunicatorWindows windows_;
  WindowPlaces places_;
  WindowRecords records_;
  bool has_own_window_ = false;     // NCCL's own window exists
  bool has_copies_window_ = false;  // that of copy engines does
  std::deque<WantedWindow> wanted_windows_;
  uint64_t window_calls_ = 0;
  std::map<int, ScaledSum> scaled_sums_;
  int next_scaled_sum_ = 0;
  uint64_t agreed_ = 0;  // the collectives of all ranks so far; only the progress thread uses it
  ProgressQueue queue_;
  std::thread thread_;
};

}  // namespace commpool::internal::emulated_nccl
