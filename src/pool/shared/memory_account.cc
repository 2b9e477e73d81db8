#include "src/pool/shared/memory_account.h"

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

void MemoryAccount::Return(uint64_t bytes) {
  MutexLock lock(mutex_);
  COMMPOOL_CHECK(bytes <= taken_, "an account gets more memory back than pools took");
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

uint64_t MemoryAccount::taken() const {
  MutexLock lock(mutex_);
  return taken_;
}

}  // namespace commpool::internal
