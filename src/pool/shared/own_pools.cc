#include "src/pool/shared/own_pools.h"

#include <utility>

#include "src/base/of_this_thread.h"

namespace commpool::internal {

std::shared_ptr<Pool> OwnPools::Meet(const PoolTable& table, PoolHandle handle) {
  if (own_state.pools == nullptr) own_state.pools = OfThisThread<OwnPools, PoolTable>();
  if (own_state.pools == nullptr) return nullptr;
  std::shared_ptr<Pool> pool = table.Meet(handle);
  if (pool != nullptr) own_state.pools->known_[handle % kKnown] = {handle, table.identity(), pool};
  return pool;
}

}  // namespace commpool::internal
