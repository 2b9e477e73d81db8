// What a nonblocking communicator does in the background, one thing at a time. Any thread.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace commpool::internal::emulated_nccl {

// Owns the result of that work. A nonblocking communicator holds one; API calls start work and ask for the result.
class AsyncWork {
 public:
  // Returns how the last work ended: ncclInProgress while it runs, ncclSuccess if there was none.
  ncclResult_t result();
  // Waits until the running work ends.
  void Wait();

  // Runs `work` in its own thread, on behalf of all `users`. Returns ncclInProgress.
  static ncclResult_t Run(std::vector<std::shared_ptr<AsyncWork>> users, std::function<ncclResult_t()> work);

 private:
  void Set(ncclResult_t result);

  std::mutex mutex_;
  std::condition_variable changed_;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace commpool::internal::emulated_nccl
