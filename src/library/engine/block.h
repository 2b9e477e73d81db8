// Block: a part of a segment that one allocation has, had or may get. The struct lies in host memory, never in the
// memory that it describes. The heap owns all blocks (in its BlockArena); engines change them through the heap.
//
// Not thread-safe: the pool's lock guards it.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_

#include <cstdint>
#include <vector>

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
  FreeList* free_list = nullptr;  // of the free index, while the block is in it
  Block* lesser = nullptr;        // what is below it in the list's tree (FreeBlocks)
  Block* greater = nullptr;
  Part part = kCommonPart;
  BlockState state = BlockState::kFree;
  // The block has no stream (kNoStream), or that was forgotten while the block was live: the key may mean another one.
  bool stream_over = false;
  Reasons closed_by = 0;      // not 0 exactly while the block is closed
  Marks marks = 0;            // of a live block
  uint32_t closed_place = 0;  // in the heap's list of closed blocks
  Uses uses = {};
  Moment freed_at = 0;     // of merged blocks, the latest
  StreamKey stream = 0;    // of the last allocation
  uint64_t requested = 0;  // of a live block
  uint64_t sequence = 0;   // of a symmetric pool's block: of its allocation
};

// Whether the block's addresses have no memory.
constexpr bool IsHole(BlockState state) { return state == BlockState::kUnmapped || state == BlockState::kArriving; }
inline bool IsHole(const Block& block) { return IsHole(block.state); }

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
  if (block.state != BlockState::kFree) return block.state != BlockState::kLive && !IsHole(block);
  for (const Use& use : block.uses) {
    if (use.fence_missing() || use.fence != kNoFence) return true;
  }
  return false;
}

// All keep `uses` ascending and without duplicates.
void AddToUses(Uses& uses, const Use& use);
inline void AddUse(Uses& uses, const Use& use) { uses.empty() ? uses.push_back(use) : AddToUses(uses, use); }
inline void UniteUses(Uses& uses, const Uses& others) {
  if (uses == others) return;
  for (const Use& use : others) AddUse(uses, use);
}

// The uses that `stream` must wait for before it touches the memory. Its own work is in order already. A wait for all
// work of another stream covers that stream's fences.
std::vector<StreamUse> WaitsOf(const Uses& uses, StreamKey stream);

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_H_
