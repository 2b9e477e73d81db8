// What programs and recordings see of a pool's blocks. Each call takes the pool's lock. Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_

#include <vector>

#include "commpool/status.h"
#include "src/library/pool/blocks/block_store.h"

namespace commpool::internal {

// The live block that holds the address. kNotFound where there is none, or a thread's cache has it. The address may lie
// anywhere in the block.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address);
// Every block, by segment and address. Changes that threads' caches make meanwhile may be missing.
std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks);
// Records the memory that the pool has, and the live blocks that caches do not keep, for a recording that begins.
void RecordBlocks(const PoolBasis& basis, const BlockStore& store);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_BLOCK_LISTING_H_
