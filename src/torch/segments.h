// A pool's blocks as the segments that PyTorch shows, and which of them PyTorch calls small or large.
//
// The library's statistics do not tell small blocks from large ones. So the router counts the large blocks that it
// hands out; they take the pool's lock anyway. A call for statistics looks at all blocks and finds large blocks of
// other callers. The rest is small.
#pragma once

#include <cstdint>
#include <vector>

#include "commpool/commpool.h"

namespace commpool::torch_adapter {

inline constexpr uint64_t kSmallRequest = 1 << 20;  // PyTorch's limit between its small and its large pool

// The large blocks of one pool that the router handed out.
struct LargeBlocks {
  commpool_counter requested_bytes = {};
  commpool_counter allocated_bytes = {};
  commpool_counter allocated_blocks = {};

  void Made(uint64_t requested);
  void Freed(uint64_t requested);
  void ResetPeaks();
};

// Returns all blocks of a pool, ordered by address.
std::vector<commpool_block> BlocksOf(commpool_pool pool);

// Mapped neighbours. In an expandable pool unmapped addresses are not memory: they end one segment, and the next mapped
// block begins another.
using SegmentBlocks = std::vector<commpool_block>;
std::vector<SegmentBlocks> SegmentsOf(commpool_pool pool);

inline bool IsActive(const commpool_block& block) {
  return block.state == COMMPOOL_BLOCK_LIVE || block.state == COMMPOOL_BLOCK_PENDING;
}

// Says whether PyTorch would put it into its large pool: it has a large block, or more free memory than a small
// segment.
bool IsLarge(const SegmentBlocks& segment);

// Returns the large part of a pool's statistics. `counted`: the blocks that the router handed out.
commpool_statistics LargeOf(commpool_pool pool, const commpool_statistics& all, const LargeBlocks& counted);

}  // namespace commpool::torch_adapter
