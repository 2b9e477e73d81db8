// Block: a part of a segment that one allocation has, had or may get. The struct lies in host memory, never in the
// memory that it describes. The heap owns all blocks (in its BlockArena); engines change them through the heap.
//
// Not thread-safe: the pool's lock guards it.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_

#include <cstdint>
#include <vector>

#include "src/library/engine/placement_history.h"
#include "src/library/engine/types.h"
#include "src/library/engine/uses.h"

namespace commpool::internal::engine {

struct FreeList;
struct HeapSegment;

enum class BlockState : uint8_t {
  kLive,      // an allocation has it; `uses` are the other streams recorded for it
  kFree,      // in the free index
  kResting,   // free memory too, just freed: not merged yet (resting_blocks.h)
  kClosed,    // freed, and serves nobody while a reason is left (Block::closed_by)
  kUnmapped,  // addresses of an expandable pool that have no memory
  kArriving,  // such addresses, claimed by a growth
  kLeaving,   // free pages, claimed by a growth: it moves or releases them
};

// The fields that searches read in neighbours come first: the struct spans two cache lines.
struct Block {
  HeapSegment* segment = nullptr;
  Block* previous = nullptr;  // neighbours in address order
  Block* next = nullptr;
  uint64_t offset = 0;  // in the segment
  uint64_t bytes = 0;
  Part part = kCommonPart;
  BlockState state = BlockState::kFree;
  // The block has no stream (kNoStream), or that was forgotten while the block was live: the key may mean another one.
  bool stream_over = false;
  Reasons closed_by = 0;          // not 0 exactly while the block is closed
  Marks marks = 0;                // of a live block
  uint32_t closed_place = 0;      // in the heap's list of closed blocks
  FreeList* free_list = nullptr;  // of the free index, while the block is in it
  Block* lesser = nullptr;        // what is below it in the list's tree (SizedBlocks)
  Block* greater = nullptr;
  Uses uses;
  Moment freed_at = 0;      // of merged blocks, the latest
  Placement placement = 0;  // of the last search that chose its place
  StreamKey stream = 0;     // of the last allocation
  uint64_t requested = 0;   // of a live block
  uint64_t sequence = 0;    // of a symmetric pool's block: of its allocation
};

// Whether the block's addresses have no memory.
constexpr bool IsHole(BlockState state) { return state == BlockState::kUnmapped || state == BlockState::kArriving; }
inline bool IsHole(const Block& block) { return IsHole(block.state); }

// Whether the block is free memory: merged and in the index, or resting.
inline bool IsFreeMemory(const Block& block) {
  return block.state == BlockState::kFree || block.state == BlockState::kResting;
}

// Whether the pool has yet to record a fence for one of the streams that used the freed block.
inline bool LacksFence(const Block& block) {
  for (const Use& use : block.uses) {
    if (use.fence_missing()) return true;
  }
  return false;
}
// Whether the block is closed by this, whatever else closes it.
inline bool IsClosedBy(const Block& block, Reason reason) { return (block.closed_by & ReasonsOf(reason)) != 0; }
// Whether only the block's own stream may take it.
inline bool IsStranded(const Block& block) {
  for (const Use& use : block.uses) {
    if (use.stranded()) return true;
  }
  return false;
}
// Whether the block is freed but waits for a fence to pass, or for another rank. Statistics count it as pending.
inline bool IsPending(const Block& block) {
  if (block.state == BlockState::kLive || IsHole(block)) return false;
  if (!IsFreeMemory(block)) return true;
  for (const Use& use : block.uses) {
    if (use.fence_missing() || use.fence != kNoFence) return true;
  }
  return false;
}

// Both keep `uses` ascending and without duplicates.
void AddUse(Uses& uses, const Use& use);
void UniteUses(Uses& uses, const Uses& others);

// The uses that `stream` must wait for before it touches the memory. Its own work is in order already. A wait for all
// work of another stream covers that stream's fences.
std::vector<StreamUse> WaitsOf(const Uses& uses, StreamKey stream);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_
