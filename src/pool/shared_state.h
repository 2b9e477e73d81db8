// What the pools of a runtime share: who owns an address, where windows are, threads' caches, other allocators of the
// process. Any thread.
#ifndef COMMPOOL_SRC_POOL_SHARED_STATE_H_
#define COMMPOOL_SRC_POOL_SHARED_STATE_H_

#include <memory>

#include "src/driver/annotations.h"
#include "src/pool/cache_registry.h"
#include "src/pool/memory_holders.h"
#include "src/pool/pool_table.h"
#include "src/registration/window_index.h"

namespace commpool::internal {

struct SharedState {
  explicit SharedState(const Driver& driver) : annotations(FindAnnotations(driver)) {}

  const Annotations annotations;
  MemoryHolders holders;
  WindowIndex windows;
  // Threads that end later than the runtime still look at it.
  const std::shared_ptr<CacheRegistry> caches = std::make_shared<CacheRegistry>();
  PoolTable table;  // goes first: its pools use the rest
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_STATE_H_
