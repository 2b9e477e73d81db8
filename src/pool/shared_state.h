// What the pools of a runtime share: who owns an address, threads' caches, other allocators of the process. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_STATE_H_
#define COMMPOOL_SRC_POOL_SHARED_STATE_H_

#include <memory>

#include "src/driver/annotations.h"
#include "src/pool/cache_registry.h"
#include "src/pool/memory_holders.h"
#include "src/pool/pool_table.h"

namespace commpool {

struct SharedState {
  explicit SharedState(const Driver& driver) : annotations(FindAnnotations(driver)) {}

  const Annotations annotations;
  PoolTable table;
  MemoryHolders holders;
  // Threads that end later than the runtime still look at it.
  std::shared_ptr<CacheRegistry> caches = std::make_shared<CacheRegistry>();
};

}  // namespace commpool

#endif  // COMMPOOL_SRC_POOL_SHARED_STATE_H_
