// What the pools of one device have reserved together, against a limit. Any thread.
#ifndef COMMPOOL_SRC_POOL_MEMORY_ACCOUNT_H_
#define COMMPOOL_SRC_POOL_MEMORY_ACCOUNT_H_

#include <cstdint>

#include "src/base/mutex.h"

namespace commpool::internal {

class MemoryAccount {
 public:
  void SetLimit(uint64_t bytes);

  // Whether the bytes fit under the limit; then they are taken, until they are given back.
  bool Take(uint64_t bytes);
  void GiveBack(uint64_t bytes);
  // What Take would still grant.
  uint64_t Room() const;
  uint64_t limit() const;

 private:
  mutable Mutex mutex_{LockRank::kLeaf};
  uint64_t limit_ COMMPOOL_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t taken_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_MEMORY_ACCOUNT_H_
