// What a pool's mode decides when a block is freed.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_BLOCK_RULES_H_
#define COMMPOOL_SRC_POOL_BLOCKS_BLOCK_RULES_H_

#include <cuda.h>

#include "commpool/status.h"
#include "src/engine/types.h"

namespace commpool::internal {

class BlockRules {
 public:
  virtual ~BlockRules() = default;

  // Closes the block in the engine. The pool's lock is held.
  virtual Result<engine::Freed> FreeInEngine(CUdeviceptr address) = 0;
  // Whether nobody uses the block after its free. A graph's block is used again when the graph is replayed. No lock.
  virtual bool EndsWithItsFree(CUdeviceptr address) const = 0;
  // After blocks came back: a pool may now give memory back to the driver. No lock.
  virtual void AfterFree() = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_BLOCK_RULES_H_
