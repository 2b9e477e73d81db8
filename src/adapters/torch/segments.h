// A pool's blocks in the segments that PyTorch shows, and what of them PyTorch calls small and large.
//
// The library does not tell them apart in its figures. So the router counts the large blocks that it hands out, which
// take the pool's lock anyway, a figure's look at all blocks finds who else has some, and the rest is small.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_SEGMENTS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "commpool/commpool.h"

namespace commpool::torch_adapter {

inline constexpr uint64_t kSmallRequest = 1 << 20;  // PyTorch's border between its small and its large pool

// Of one pool, those that the router handed out.
struct LargeBlocks {
  commpool_counter requested_bytes = {};
  commpool_counter allocated_bytes = {};
  commpool_counter allocated_blocks = {};

  void Made(uint64_t requested);
  void Freed(uint64_t requested);
  void ResetPeaks();
};

// All of a pool's, by their addresses.
std::vector<commpool_block> BlocksOf(commpool_pool pool);

// Neighbours that are mapped: unmapped addresses of an expandable pool are no memory, so they end one segment, and the
// next mapped block begins another.
using SegmentBlocks = std::vector<commpool_block>;
std::vector<SegmentBlocks> SegmentsOf(commpool_pool pool);

inline bool IsActive(const commpool_block& block) {
  return block.state == COMMPOOL_BLOCK_LIVE || block.state == COMMPOOL_BLOCK_PENDING;
}

// Whether PyTorch would have it in its large pool: it has a large block, or more free memory than a small segment.
bool IsLarge(const SegmentBlocks& segment);

// What of a pool's figures is large; `counted`: of the blocks that the router handed out.
commpool_statistics LargeOf(commpool_pool pool, const commpool_statistics& all, const LargeBlocks& counted);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_SEGMENTS_H_
