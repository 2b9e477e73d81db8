#include "src/emulator/nccl/progress_queue.h"

#include <utility>

namespace commpool::internal::emulated_nccl {

uint64_t ProgressQueue::Launch() {
  const std::lock_guard lock(mutex_);
  return ++launched_;
}

void ProgressQueue::CancelLaunch() {
  const std::lock_guard lock(mutex_);
  --launched_;
}

uint64_t ProgressQueue::LaunchUnlessClosed() {
  const std::lock_guard lock(mutex_);
  return closed_ ? 0 : ++launched_;
}

void ProgressQueue::Post(std::unique_ptr<PendingCollective> pending) {
  const std::lock_guard lock(mutex_);
  const uint64_t sequence = pending->sequence;
  posted_.emplace(sequence, std::move(pending));
  changed_.notify_all();
}

std::unique_ptr<PendingCollective> ProgressQueue::TakeNext() {
  std::unique_lock lock(mutex_);
  const uint64_t next = ended_ + 1;
  changed_.wait(lock, [&] { return posted_.count(next) > 0 || (closed_ && ended_ == launched_); });
  const auto found = posted_.find(next);
  if (found == posted_.end()) return nullptr;
  std::unique_ptr<PendingCollective> pending = std::move(found->second);
  posted_.erase(found);
  running_ = true;
  return pending;
}

void ProgressQueue::Finish() {
  const std::lock_guard lock(mutex_);
  ++ended_;
  running_ = false;
  changed_.notify_all();
}

bool ProgressQueue::WaitUntilIdle(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return interrupted_ || ended_ == launched_; });
  return ended_ == launched_;
}

void ProgressQueue::Interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
}

bool ProgressQueue::WaitUntilNothingRuns() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !running_ && posted_.count(ended_ + 1) == 0; });
  return ended_ == launched_;
}

void ProgressQueue::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool ProgressQueue::WaitUntilClosed(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return closed_; });
}

}  // namespace commpool::internal::emulated_nccl
