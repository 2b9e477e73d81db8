#include "src/registration/lost_ranks.h"

#include <utility>

namespace commpool::internal {

Status LostRanks::status() const {
  if (!any()) return Status();
  std::lock_guard lock(mutex_);
  const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - when_);
  return Status(StatusCode::kRemoteFailure, RankName(static_cast<size_t>(first())) + " was lost " +
                                                std::to_string(ago.count()) + " ms ago: " + how_);
}

void LostRanks::Note(int rank, const std::string& how) {
  std::lock_guard lock(mutex_);
  if (any()) return;
  how_ = how;
  when_ = std::chrono::steady_clock::now();
  first_.store(rank, std::memory_order_release);
}

LostRanks::ListenerNumber LostRanks::AddListener(Listener listener) {
  std::lock_guard lock(mutex_);
  to_call_.emplace(next_, std::move(listener));
  return next_++;
}

void LostRanks::RemoveListener(ListenerNumber number) {
  std::unique_lock lock(mutex_);
  to_call_.erase(number);
  ended_.wait(lock, [&] { return running_ != number; });
}

void LostRanks::CallListeners() {
  if (!any()) return;
  std::unique_lock lock(mutex_);
  while (!to_call_.empty()) {
    const auto next = to_call_.extract(to_call_.begin());
    running_ = next.key();
    lock.unlock();
    next.mapped()(first());  // the program's own code: under no lock
    lock.lock();
    running_ = 0;
    ended_.notify_all();
  }
}

}  // namespace commpool::internal
