#include "src/pool/memory_account.h"

#include "src/base/check.h"

namespace commpool::internal {

void MemoryAccount::SetLimit(uint64_t bytes) {
  MutexLock lock(mutex_);
  limit_ = bytes;
}

bool MemoryAccount::Take(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (taken_ > limit_ || bytes > limit_ - taken_) return false;
  taken_ += bytes;
  return true;
}

void MemoryAccount::GiveBack(uint64_t bytes) {
  MutexLock lock(mutex_);
  COMMPOOL_CHECK(bytes <= taken_, "a device gets more memory back than its pools took");
  taken_ -= bytes;
}

uint64_t MemoryAccount::Room() const {
  MutexLock lock(mutex_);
  return taken_ > limit_ ? 0 : limit_ - taken_;
}

uint64_t MemoryAccount::limit() const {
  MutexLock lock(mutex_);
  return limit_;
}

}  // namespace commpool::internal
