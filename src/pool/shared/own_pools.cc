#include "src/pool/shared/own_pools.h"

#include <utility>

#include "src/base/host_failure.h"
#include "src/base/of_this_thread.h"

namespace commpool::internal {

std::shared_ptr<Pool> OwnPools::Meet(const PoolTable& table, PoolHandle handle) {
  if (own_state.pools == nullptr) own_state.pools = OfThisThread<OwnPools, PoolTable>();
  if (own_state.pools == nullptr) return nullptr;
  std::shared_ptr<Pool> met;
  // A failure is a sentence, which the host may have no memory for. The long way says it.
  AttemptInVain([&] {
    Result<std::shared_ptr<Pool>> pool = table.Find(handle);
    if (pool.ok()) met = std::move(*pool);
  });
  if (met != nullptr) own_state.pools->known_[handle % kKnown] = {handle, table.identity(), met};
  return met;
}

}  // namespace commpool::internal
