// BlockRules: what the modes of pools do differently when a block is freed. The mode implements it, BlockStore calls
// it.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_RULES_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_RULES_H_

#include <cuda.h>

#include "commpool/status.h"
#include "src/library/engine/types.h"

namespace commpool::internal {

// PoolMode derives from it. BlockStore calls it in Free, with the lock that each method names.
class BlockRules {
 public:
  virtual ~BlockRules() = default;

  // Closes the block in the engine, also by these reasons. The caller holds the pool's lock.
  virtual Result<engine::Freed> FreeInEngine(CUdeviceptr address, engine::Reasons also) = 0;
  // Called when blocks have come back, without a lock: the pool may now give memory back to the driver.
  virtual void AfterFree() = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_RULES_H_
