// Which communicators exist in this process: a handle that is none of them is refused, not followed. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_

#include <nccl.h>

#include <map>
#include <memory>
#include <mutex>

#include "src/emulator/nccl/communicator.h"

namespace commpool::emulated_nccl {

class LiveCommunicators {
 public:
  static LiveCommunicators& Get();

  ncclComm_t Add(std::shared_ptr<Communicator> communicator);
  std::shared_ptr<Communicator> Find(ncclComm_t handle);
  void Remove(ncclComm_t handle);

 private:
  std::mutex mutex_;
  std::map<ncclComm_t, std::shared_ptr<Communicator>> live_;
};

// The head of an API call on a communicator: counts it, injects a fault, finds the communicator, and marks the thread
// as its user until the call ends.
class Call {
 public:
  Call(const char* name, ncclComm_t handle);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // What the API function returns at once unless it is ncclSuccess.
  ncclResult_t result() const { return result_; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  Communicator* operator->() const { return communicator_.get(); }

 private:
  std::shared_ptr<Communicator> communicator_;
  ncclResult_t result_ = ncclSuccess;
  bool entered_ = false;
};

// The same for calls without a communicator: the injected result, or ncclSuccess.
ncclResult_t EnterCall(const char* name);

// The communicator of a call that any thread may make meanwhile; null, with a report where it should be, otherwise.
std::shared_ptr<Communicator> FindReported(const char* name, ncclComm_t handle);

}  // namespace commpool::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_LIVE_COMMUNICATORS_H_
