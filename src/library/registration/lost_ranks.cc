#include "src/library/registration/lost_ranks.h"

#include <utility>

#include "src/library/base/failure.h"

namespace commpool::internal {

Status LostRanks::status() const {
  if (!any()) return Status();
  MutexLock lock(mutex_);
  const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - when_);
  return RemoteFailure(RankName(static_cast<size_t>(first())), " was lost ", ago.count(), " ms ago: ", how_);
}

void LostRanks::Note(int rank, const std::string& how) {
  MutexLock lock(mutex_);
  if (any()) return;
  how_ = how;
  when_ = std::chrono::steady_clock::now();
  first_.store(rank, std::memory_order_release);
}

LostRanks::ListenerNumber LostRanks::AddListener(Listener listener) {
  MutexLock lock(mutex_);
  to_call_.emplace(next_, std::move(listener));
  return next_++;
}

void LostRanks::RemoveListener(ListenerNumber number) {
  MutexLock lock(mutex_);
  to_call_.erase(number);
  while (running_ == number) ended_.Wait(mutex_);
}

void LostRanks::CallListeners() {
  if (!any()) return;
  for (;;) {
    decltype(to_call_)::node_type next;
    {
      MutexLock lock(mutex_);
      if (to_call_.empty()) return;
      next = to_call_.extract(to_call_.begin());
      running_ = next.key();
    }
    next.mapped()(first());  // the program's own code: under no lock
    MutexLock lock(mutex_);
    running_ = 0;
    ended_.NotifyAll();
  }
}

}  // namespace commpool::internal
