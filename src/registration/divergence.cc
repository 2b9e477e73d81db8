#include "src/registration/divergence.h"

namespace commpool::internal {

Status Divergence::status() const {
  if (!known()) return Status();
  MutexLock lock(mutex_);
  return first_;
}

void Divergence::Note(const Status& difference) {
  MutexLock lock(mutex_);
  if (!first_.ok()) return;
  first_ = difference;
  known_.store(!difference.ok(), std::memory_order_release);
}

void Divergence::Forget() {
  MutexLock lock(mutex_);
  first_ = Status();
  known_.store(false, std::memory_order_release);
}

Status SequencesDiffer(const std::string& difference) {
  return Status(StatusCode::kDisagreement,
                "the sequences of calls differ, so blocks are at different offsets: " + difference);
}

}  // namespace commpool::internal
