#include "src/emulator/nccl/async_work.h"

#include <thread>
#include <utility>

#include "src/emulator/nccl/host_failure.h"

namespace commpool::internal::emulated_nccl {

ncclResult_t AsyncWork::result() {
  const std::lock_guard lock(mutex_);
  return result_;
}

void AsyncWork::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return result_ != ncclInProgress; });
}

void AsyncWork::Set(ncclResult_t result) {
  const std::lock_guard lock(mutex_);
  result_ = result;
  changed_.notify_all();
}

ncclResult_t AsyncWork::Run(std::vector<std::shared_ptr<AsyncWork>> users, std::function<ncclResult_t()> work) {
  for (const auto& user : users) user->Set(ncclInProgress);
  const ncclResult_t started = OrSystemError([&] {
    std::thread([users, work = std::move(work)]() mutable {
      const ncclResult_t result = OrSystemError(work);
      work = nullptr;  // frees its resources before anyone sees the result
      for (const auto& user : users) user->Set(result);
    }).detach();
    return ncclInProgress;
  });
  for (const auto& user : users) {
    if (started != ncclInProgress) user->Set(started);
  }
  return started;
}

}  // namespace commpool::internal::emulated_nccl
