#include "tools/common/engine_invariants.h"

#include <algorithm>
#include <set>

#include "src/library/base/check.h"
#include "src/library/engine/expandable_engine.h"

namespace commpool::internal::engine {
namespace {

// The sums over all blocks, to compare with the books.
struct Sums {
  uint64_t requested_bytes = 0;
  uint64_t live_bytes = 0;
  uint64_t live_blocks = 0;
  std::set<const Block*> free_blocks;  // as the free index has them
  uint64_t closed_blocks = 0;
  uint64_t largest_free_block = 0;
  uint64_t pending_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t fence_links = 0;
};

void CheckUses(const Block& block, const Heap& heap, Moment now, Sums& sums) {
  COMMPOOL_CHECK(std::is_sorted(block.uses.begin(), block.uses.end()) &&
                     std::adjacent_find(block.uses.begin(), block.uses.end()) == block.uses.end(),
                 "a block's uses are out of order, or one is there twice");
  COMMPOOL_CHECK(block.freed_at <= now, "a block was freed in the future");
  COMMPOOL_CHECK((block.closed_by != 0) == (block.state == BlockState::kClosed),
                 "a block is closed without a reason, or has one and is not");
  COMMPOOL_CHECK(block.state != BlockState::kClosed || IsClosedBy(block, Reason::kFences) == LacksFence(block),
                 "a closed block misses a fence and is not closed for it, or misses none and is");
  COMMPOOL_CHECK(block.marks == 0 || block.state == BlockState::kLive, "a block that is not live is marked");
  for (const Use& use : block.uses) {
    COMMPOOL_CHECK(!use.fence_missing() || use.fence == kNoFence, "a use has a fence and misses one");
    if (block.state == BlockState::kLive) {
      COMMPOOL_CHECK(use.fence == kNoFence && !use.fence_missing() && (use.stream != block.stream || block.stream_over),
                     "a live block has a use that is no other stream's");
    }
    if (use.fence == kNoFence) continue;
    const auto entry = heap.fences().entries().find(use.fence);
    COMMPOOL_CHECK(entry != heap.fences().entries().end() && entry->second.blocks.contains(const_cast<Block*>(&block)),
                   "a fence does not know its block");
    ++sums.fence_links;
  }
}

// The blocks of the free index: each is in the list of its uses, and a search finds it there.
std::set<const Block*> IndexedBlocks(const FreeIndex& index) {
  std::set<const Block*> indexed;
  for (const auto& entry : index.lists()) {
    const FreeList& list = entry.second;
    const Block* previous = nullptr;
    list.blocks.VisitFrom(0, [&](const Block* block) {
      COMMPOOL_CHECK(block->free_list == &list && FreeIndex::ClassOf(*block) == entry.first,
                     "a block is in a list of other uses");
      COMMPOOL_CHECK(previous == nullptr || list.blocks.IsBefore(*previous, *block), "a list is out of order");
      indexed.insert(previous = block);
    });
  }
  return indexed;
}

void AddBlock(const Block* block, const Heap& heap, Sums& sums) {
  const bool free = block->state == BlockState::kFree;
  COMMPOOL_CHECK((sums.free_blocks.erase(block) == 1) == free, "the free index differs from the free blocks");
  if (block->state == BlockState::kClosed) {
    ++sums.closed_blocks;
    COMMPOOL_CHECK(block->closed_place < heap.closed().size() && heap.closed()[block->closed_place] == block,
                   "a closed block is not in the list of those");
  }
  if (block->state == BlockState::kFree && block->part == kCommonPart) {
    sums.largest_free_block = std::max(sums.largest_free_block, block->bytes);
  }
  if (block->state == BlockState::kLive) {
    ++sums.live_blocks;
    sums.live_bytes += block->bytes;
    sums.requested_bytes += block->requested;
    COMMPOOL_CHECK(block->requested > 0 && block->requested <= block->bytes, "a block is smaller than its allocation");
    COMMPOOL_CHECK(block->bytes - block->requested < heap.alignment() + block->requested / 8,
                   "a block wastes more than its alignment and its size class");
  } else {
    COMMPOOL_CHECK(block->requested == 0, "a block without an allocation has requested bytes");
  }
  if (IsPending(*block) || (free && block->part != kCommonPart)) sums.pending_bytes += block->bytes;
}

void CheckSegment(const HeapSegment& segment, const Heap& heap, Moment now, Sums& sums) {
  uint64_t offset = 0;
  uint64_t held = 0;
  const Block* previous = nullptr;
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    COMMPOOL_CHECK(block->segment == &segment && block->previous == previous, "the list of blocks is broken");
    COMMPOOL_CHECK(block->offset == offset, "blocks overlap, or leave a gap");
    COMMPOOL_CHECK(block->bytes > 0 && block->bytes % heap.alignment() == 0, "a block's size is not aligned");
    COMMPOOL_CHECK(heap.Find(AddressOf(*block)) == block, "the page map does not find a block");
    COMMPOOL_CHECK(previous == nullptr || !heap.Mergeable(*previous, *block), "free neighbours were not merged");
    CheckUses(*block, heap, now, sums);
    AddBlock(block, heap, sums);
    offset += block->bytes;
    held += block->state == BlockState::kLive || Heap::Holds(*block) ? 1 : 0;
    if (!IsHole(*block)) sums.reserved_bytes += block->bytes;
    previous = block;
  }
  COMMPOOL_CHECK(offset == segment.range.bytes, "the blocks of a segment do not add up to it");
  COMMPOOL_CHECK(held == segment.held_blocks, "a segment's count of held blocks is wrong");
}

void CheckPages(const ExpandableEngine& engine) {
  uint64_t bytes = 0;
  Address end = 0;
  for (const auto& [address, size] : engine.pages()) {
    COMMPOOL_CHECK(address >= end, "two pages overlap");
    end = address + size;
    bytes += size;
    for (Address at = address; at < end;) {
      const Block* const block = engine.heap().Find(at);
      COMMPOOL_CHECK(block != nullptr && !IsHole(*block), "a page lies where the pool has no memory");
      at = AddressOf(*block) + block->bytes;
    }
  }
  COMMPOOL_CHECK(bytes == engine.counters().reserved_bytes.current, "pages do not add up to the reserved bytes");
}

}  // namespace

void CheckInvariants(const Engine& engine) {
  const Heap& heap = engine.heap();
  Sums sums;
  sums.free_blocks = IndexedBlocks(heap.free_index());
  for (const auto& [index, segment] : heap.segments()) {
    COMMPOOL_CHECK(segment->index == index, "a segment was renumbered");
    CheckSegment(*segment, heap, engine.Now(), sums);
  }
  const Counters counters = engine.counters();
  COMMPOOL_CHECK(counters.requested_bytes.current == sums.requested_bytes, "requested bytes do not add up");
  COMMPOOL_CHECK(counters.allocated_bytes.current == sums.live_bytes, "allocated bytes do not add up");
  COMMPOOL_CHECK(counters.allocated_blocks.current == sums.live_blocks, "allocated blocks do not add up");
  COMMPOOL_CHECK(counters.reserved_bytes.current == sums.reserved_bytes, "reserved bytes do not add up");
  COMMPOOL_CHECK(counters.free_bytes == sums.reserved_bytes - sums.live_bytes, "free bytes do not add up");
  COMMPOOL_CHECK(counters.largest_free_block_bytes == sums.largest_free_block, "the largest free block is another");
  COMMPOOL_CHECK(counters.pending_bytes == sums.pending_bytes, "pending bytes do not add up");
  COMMPOOL_CHECK(sums.free_blocks.empty(), "the free index has blocks that are not free");
  COMMPOOL_CHECK(heap.closed().size() == sums.closed_blocks, "a block is listed as closed that is not");
  uint64_t fence_links = 0;
  for (const auto& [fence, entry] : heap.fences().entries()) fence_links += entry.blocks.size();
  COMMPOOL_CHECK(fence_links == sums.fence_links, "a fence guards a block that does not name it");
  if (const auto* const expandable = dynamic_cast<const ExpandableEngine*>(&engine)) CheckPages(*expandable);
}

}  // namespace commpool::internal::engine
