// Handle -> pool. Handles are never reused, so a stale one is an error and not a crash. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_
#define COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"

namespace commpool::internal {

class Pool;

using PoolHandle = uint64_t;

class PoolTable {
 public:
  // A handle for a pool that is about to be added: it must know its handle before anybody finds it.
  PoolHandle NextHandle();
  void Add(PoolHandle handle, std::shared_ptr<Pool> pool);
  // kNotFound for a handle that never was or has ended.
  Result<std::shared_ptr<Pool>> Find(PoolHandle handle) const;
  Result<std::shared_ptr<Pool>> Remove(PoolHandle handle);

  // Pools without a handle that the table still looks after: none that is gone.
  size_t removed() const;

  // Every pool with a handle, oldest first, then those without that live blocks keep alive.
  ReservedVector<std::shared_ptr<Pool>> All() const;

 private:
  mutable Mutex mutex_{LockRank::kPoolTable};
  PoolHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedMap<PoolHandle, std::shared_ptr<Pool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedVector<std::weak_ptr<Pool>> removed_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_POOL_TABLE_H_
