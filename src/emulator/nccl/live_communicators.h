// Which communicators exist in this process: a handle that is none of them is refused, not followed. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_

#include <nccl.h>

#include <map>
#include <memory>
#include <mutex>

#include "src/emulator/nccl/async_work.h"
#include "src/emulator/nccl/communicator.h"

namespace commpool::internal::emulated_nccl {

class LiveCommunicators {
 public:
  static LiveCommunicators& Get();

  struct Entry {
    std::shared_ptr<EmulatedCommunicator> communicator;  // null until a nonblocking one is initialised
    std::shared_ptr<AsyncWork> work;                     // null for a blocking one
    bool exists() const { return communicator != nullptr || work != nullptr; }
  };

  ncclComm_t Add(std::shared_ptr<EmulatedCommunicator> communicator);
  // A handle whose communicator is still being made; Fill is false where it has been removed meanwhile.
  ncclComm_t Reserve(std::shared_ptr<AsyncWork> work);
  bool Fill(ncclComm_t handle, std::shared_ptr<EmulatedCommunicator> communicator);
  Entry Find(ncclComm_t handle);
  // Returns the entry that it removed.
  Entry Remove(ncclComm_t handle);

 private:
  std::mutex mutex_;
  std::map<ncclComm_t, Entry> live_;
};

// The head of an API call on a communicator: counts it, injects a fault, finds the communicator, and marks the thread
// as its user until the call ends.
class Call {
 public:
  // What a call does while a nonblocking communicator still works: NCCL refuses most calls (ncclInvalidArgument), and
  // after a failure too. Those that end registrations ask for neither (NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc).
  enum class Unfinished { kRefuse, kWait, kGoOn };
  Call(const char* name, ncclComm_t handle, Unfinished unfinished = Unfinished::kRefuse);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What the API function returns at once unless it is ncclSuccess.
  ncclResult_t result() const { return result_; }
  // Null with Unfinished::kWait, where the initialisation failed.
  const std::shared_ptr<EmulatedCommunicator>& communicator() const { return communicator_; }
  EmulatedCommunicator* operator->() const { return communicator_.get(); }

 private:
  std::shared_ptr<EmulatedCommunicator> communicator_;
  ncclResult_t result_ = ncclSuccess;
  bool entered_ = false;
};

// The same for calls without a communicator: the injected result, or ncclSuccess.
ncclResult_t EnterCall(const char* name);

// The entry of a handle, whichever thread uses its communicator. Empty, with a report, where there is no such handle.
LiveCommunicators::Entry FindEntry(const char* name, ncclComm_t handle);

// The communicator, where it is ready; null otherwise.
std::shared_ptr<EmulatedCommunicator> FindReported(const char* name, ncclComm_t handle);

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_
