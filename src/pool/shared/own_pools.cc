#include "src/pool/shared/own_pools.h"

#include <utility>

#include "src/base/of_this_thread.h"

namespace commpool::internal {

std::shared_ptr<Pool> OwnPools::Meet(const PoolTable& table, PoolHandle handle) {
  if (own_state.pools == nullptr) own_state.pools = OfThisThread<OwnPools, PoolTable>();
  if (own_state.pools == nullptr) return nullptr;
  PoolTable::Met met = table.Meet(handle);
  if (met.pool == nullptr) return nullptr;
  Known& known = own_state.pools->known_[handle % kKnown];
  known = {handle, table.identity(), met.pool, std::move(met.repetition)};
  own_state.pools->last_ = &known;
  return std::move(met.pool);
}

}  // namespace commpool::internal
