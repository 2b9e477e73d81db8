// What a nonblocking communicator does in the background, one thing at a time. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_ASYNC_WORK_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_ASYNC_WORK_H_

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace commpool::internal::emulated_nccl {

class AsyncWork {
 public:
  // How the last work ended; ncclInProgress while it runs, ncclSuccess where there was none.
  ncclResult_t result();
  // Waits for the end of the work that runs.
  void Wait();

  // Runs `work` in a thread of its own, for all of `users`; ncclInProgress.
  static ncclResult_t Run(std::vector<std::shared_ptr<AsyncWork>> users, std::function<ncclResult_t()> work);

 private:
  void Set(ncclResult_t result);

  std::mutex mutex_;
  std::condition_variable changed_;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_ASYNC_WORK_H_
