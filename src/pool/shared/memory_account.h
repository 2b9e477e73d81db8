// What pools have reserved together at one placement (a device, or a host NUMA node), against a limit. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_

#include <cstdint>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/base/mutex.h"
#include "src/pool/shared/taken.h"

namespace commpool::internal {

class MemoryAccount {
 public:
  // `place`: "device 1", for messages. `capacity`: the memory that is there, UINT64_MAX where that is not known.
  explicit MemoryAccount(std::string place = "", uint64_t capacity = UINT64_MAX)
      : place_(std::move(place)), capacity_(capacity) {}

  const std::string& place() const { return place_; }
  uint64_t capacity() const { return capacity_; }
  void SetLimit(uint64_t bytes) {
    MutexLock lock(mutex_);
    limit_ = bytes;
  }

  // Whether the bytes fit under the limit; then they are taken, until they are returned.
  bool Take(uint64_t bytes) {
    MutexLock lock(mutex_);
    if (taken_ > limit_ || bytes > limit_ - taken_) return false;
    taken_ += bytes;
    return true;
  }
  void Return(uint64_t bytes) {
    MutexLock lock(mutex_);
    COMMPOOL_CHECK(bytes <= taken_, "an account gets more memory back than pools took");
    taken_ -= bytes;
  }
  // What Take would still grant.
  uint64_t Room() const {
    MutexLock lock(mutex_);
    return taken_ > limit_ ? 0 : limit_ - taken_;
  }
  uint64_t limit() const {
    MutexLock lock(mutex_);
    return limit_;
  }
  uint64_t taken() const {
    MutexLock lock(mutex_);
    return taken_;
  }

 private:
  const std::string place_;
  const uint64_t capacity_;
  mutable Mutex mutex_{LockRank::kLeaf};
  uint64_t limit_ COMMPOOL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

// Bytes taken from an account; kept once the memory exists, whose owner returns them later.
using Room = Taken<MemoryAccount, uint64_t, &MemoryAccount::Return>;

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_ACCOUNT_H_
