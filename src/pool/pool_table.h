// The process table: handle -> pool, and address -> the pool that owns it. Any thread.
//
// Handles are never reused, so a stale one is an error and not a crash. A segment's entry keeps its pool alive: blocks
// may outlive the handle.
#ifndef COMMPOOL_SRC_POOL_POOL_TABLE_H_
#define COMMPOOL_SRC_POOL_POOL_TABLE_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/pool/pool.h"

namespace commpool::internal {

// A segment as the table knows it.
struct OwnedRange {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<Pool> owner;
};

class PoolTable {
 public:
  PoolHandle Add(std::shared_ptr<Pool> pool);
  // kNotFound for a handle that never was or has ended.
  Result<std::shared_ptr<Pool>> Find(PoolHandle handle) const;
  Result<std::shared_ptr<Pool>> Remove(PoolHandle handle);

  void AddRange(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Pool> owner);
  void RemoveRange(CUdeviceptr address);
  // The pool whose segment holds the address, and that segment; kNotFound for foreign pointers.
  Result<std::shared_ptr<Pool>> Owner(CUdeviceptr address) const;
  Result<OwnedRange> RangeOf(CUdeviceptr address) const;

  // Every pool with a handle, oldest first, and every pool that only its segments keep alive.
  std::vector<std::shared_ptr<Pool>> All() const;

 private:
  struct Range {
    uint64_t bytes = 0;
    std::shared_ptr<Pool> owner;
  };

  mutable Mutex mutex_{LockRank::kPoolTable};
  PoolHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<PoolHandle, std::shared_ptr<Pool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Range> ranges_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_TABLE_H_
