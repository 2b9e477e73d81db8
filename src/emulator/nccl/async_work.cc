#include "src/emulator/nccl/async_work.h"

#include <thread>
#include <utility>

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
  std::thread([users = std::move(users), work = std::move(work)]() mutable {
    const ncclResult_t result = work();
    work = nullptr;  // its resources go before anyone hears of the end
    for (const auto& user : users) user->Set(result);
  }).detach();
  return ncclInProgress;
}

}  // namespace commpool::internal::emulated_nccl
