// Block: a part of a segment that one allocation has, had or may get. The struct lies in host memory, never in the
// memory that it describes. The heap owns all blocks (in its BlockArena); engines change them through the heap.
//
// Not thread-safe: the pool's lock guards it.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "src/library/engine/types.h"
#include "src/library/engine/uses.h"

namespace commpool::internal::engine {

struct FreeList;
struct HeapSegment;

enum class BlockState : uint8_t {
  kLive,      // an allocation has it; `uses` are the other streams recorded for it
  kFree,      // in the free index
  kClosed,    // freed, and serves nobody while a reason is left (Block::closed_by)
  kUnmapped,  // addresses of an expandable pool that have no memory
  kArriving,  // such addresses, claimed by a growth
  kLeaving,   // free pages, claimed by a growth: it moves or releases them
};

// The fields that searches read come first, in one cache line.
struct alignas(64) Block {
  HeapSegment* segment = nullptr;
  Block* previous = nullptr;  // neighbours in address order
  Block* next = nullptr;
  uint64_t offset = 0;  // in the segment
  uint64_t bytes = 0;
  Block* lesser = nullptr;  // what is below it in its list's tree (FreeBlocks)
  Block* greater = nullptr;
  Block** link = nullptr;         // what points to it there; null outside of trees
  FreeList* free_list = nullptr;  // of the free index, while the block is in it
  Part part = kCommonPart;
  BlockState state = BlockState::kFree;
  // The block has no stream (kNoStream), or that was forgotten while the block was live: the key may mean another one.
  bool stream_over = false;
  Reasons closed_by = 0;      // not 0 exactly while the block is closed
  Marks marks = 0;            // of a live block
  uint8_t bin = 0;            // of a free block, in its list
  uint32_t closed_place = 0;  // in the heap's list of closed blocks
  Uses uses = {};
  Moment freed_at = 0;     // of merged blocks, the latest
  StreamKey stream = 0;    // of the last allocation
  uint64_t requested = 0;  // of a live block
  uint64_t sequence = 0;   // of a symmetric pool's block: of its allocation
};

// A segment as the heap sees it: a contiguous range that blocks cover without gaps.
struct HeapSegment {
  SegmentIndex index = 0;
  SegmentRange range;
  Block* first = nullptr;
  Space space = Space::kLarge;
  uint64_t held_blocks = 0;  // live, awaiting fences, deferred, moving, or free memory of a graph
  Moment last_touched = 0;   // when a block of it was closed last
};

inline Address AddressOf(const Block& block) { return block.segment->range.address + block.offset; }

// Whether the block's addresses have no memory.
constexpr bool IsHole(BlockState state) { return state == BlockState::kUnmapped || state == BlockState::kArriving; }
inline bool IsHole(const Block& block) { return IsHole(block.state); }

// Whether the pool has yet to record a fence for one of the streams that used the freed block.
inline bool LacksFence(const Block& block) {
  return block.uses.Any([](const Use& use) { return use.fence_missing(); });
}
// Whether the block is closed by this, whatever else closes it.
inline bool IsClosedBy(const Block& block, Reason reason) { return (block.closed_by & ReasonsOf(reason)) != 0; }
// Whether only the block's own stream may take it.
inline bool IsStranded(const Block& block) {
  return block.uses.Any([](const Use& use) { return use.stranded(); });
}
// Whether the block is closed, or free behind other streams' fences. Listings and statistics call both pending.
inline bool IsPending(const Block& block) {
  if (block.state != BlockState::kFree) return block.state != BlockState::kLive && !IsHole(block);
  return block.uses.Any([](const Use& use) { return use.fence != kNoFence || use.fence_missing(); });
}

// Owns the Block structs of one heap. They never move, so blocks point to each other; a recycled one is given out
// again.
class BlockArena {
 public:
  // A block that nobody uses. Its place, neighbours, uses, part, stream and moment are anything: set them.
  Block* Make() {
    if (spare_ == nullptr) return &blocks_.emplace_back();
    return std::exchange(spare_, spare_->next);
  }

  // REQUIRES: the block was free or a hole, so it has no marks and nothing closes it.
  void Recycle(Block* block) { block->next = std::exchange(spare_, block); }

 private:
  std::deque<Block> blocks_;
  Block* spare_ = nullptr;  // a list
};

}  // namespace commpool::internal::engine
