// Makes pools: checks a configuration against this driver, device and communicator, then puts the parts together.
// Runtime calls it.
#pragma once

#include <memory>

#include "commpool/status.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/options.h"
#include "src/library/pool/pool.h"

namespace commpool::internal {

// Collective for a symmetric configuration. `runtime` must outlive the pool. The configuration has passed
// CheckConfiguration. After a failure nothing of the pool is left.
Result<std::shared_ptr<Pool>> MakePool(RuntimeParts& runtime, PoolConfiguration configuration);

// For a rank that cannot make the pool: the other ranks of the home fail at once with its reason instead of waiting.
// Returns what all ranks return; `why` where they cannot be reached.
Status RefusePool(RuntimeParts& runtime, const PoolConfiguration& configuration, const Status& why);

}  // namespace commpool::internal
