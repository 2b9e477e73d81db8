// What programs and recordings see of a pool's blocks: one in a thread's cache is not live. Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_

#include <vector>

#include "commpool/status.h"
#include "src/library/pool/blocks/block_store.h"

namespace commpool::internal {

// The live block that holds the address, anywhere in it. kNotFound where there is none, or a thread's cache has it.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address);
// Every block, by segment and address. Changes that threads' caches make meanwhile may be missing.
std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks);
// Records the memory that the pool has, and the live blocks that caches do not keep. Called as a recording begins, and
// when a pool has a new home.
void RecordBlocks(const PoolBasis& basis, const BlockStore& blocks);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_
