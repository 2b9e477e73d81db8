#include "src/engine/heap.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/engine/size_policy.h"

namespace commpool::internal::engine {

Heap::Heap(uint64_t alignment, MergePolicy policy) : alignment_(alignment), policy_(policy) {
  COMMPOOL_CHECK(IsPowerOfTwo(alignment), "the alignment of blocks is no power of two");
}

SegmentIndex Heap::AddSegment(const SegmentRange& range, Space space, BlockState state) {
  COMMPOOL_CHECK(range.address % alignment_ == 0 && range.bytes % alignment_ == 0,
                 "a segment's address or size is no multiple of the pool's alignment");
  auto owner = std::make_unique<HeapSegment>();
  HeapSegment* segment = owner.get();
  page_map_.Insert(range, segment);
  segment->index = next_index_++;
  segment->range = range;
  segment->space = space;
  segments_.emplace(segment->index, std::move(owner));

  Block* block = arena_.Make();
  block->segment = segment;
  block->bytes = range.bytes;
  block->state = state;
  segment->first = block;
  InsertBlock(segment->blocks, block, spare_);
  Enter(block);
  return segment->index;
}

SegmentRange Heap::RemoveSegment(SegmentIndex index) {
  COMMPOOL_CHECK(IsWhollyFree(index), "a segment is removed that is unknown, or that still has blocks in use");
  const auto found = segments_.find(index);
  HeapSegment& segment = *found->second;
  const SegmentRange range = segment.range;
  for (Block* block = segment.first; block != nullptr;) {
    Block* next = block->next;
    Leave(block);
    EraseBlock(segment.blocks, block, spare_);
    arena_.Recycle(block);
    block = next;
  }
  page_map_.Erase(range.address);
  segments_.erase(found);
  return range;
}

bool Heap::IsWhollyFree(SegmentIndex index) const {
  const auto found = segments_.find(index);
  return found != segments_.end() && found->second->held_blocks == 0;
}

std::vector<SegmentIndex> Heap::WhollyFreeSegments() const {
  std::vector<SegmentIndex> free;
  for (const auto& [index, segment] : segments_) {
    if (segment->held_blocks == 0) free.push_back(index);
  }
  return free;
}

Block* Heap::Take(const Fit& fit) {
  COMMPOOL_CHECK(fit.bytes > 0 && fit.bytes % alignment_ == 0, "a block is asked for whose size was not rounded up");
  Block* block = free_index_.Find(fit);
  if (block == nullptr && fit.part != kCommonPart) {
    Fit idle = fit;
    idle.reuse = Reuse::kIdle;
    idle.part = kCommonPart;
    block = free_index_.Find(idle);
  }
  if (block == nullptr) return nullptr;
  Leave(block);
  if (CutsRemainder(block->bytes, fit.bytes, alignment_)) Enter(Split(block, fit.bytes));
  block->part = fit.part;
  block->state = BlockState::kLive;
  ++block->segment->held_blocks;
  return block;
}

void Heap::Close(Block* block, BlockState state) {
  COMMPOOL_CHECK(block->state == BlockState::kLive && state != BlockState::kLive, "a block is closed that is not live");
  --block->segment->held_blocks;
  block->segment->last_touched = ++touches_;
  block->state = state;
  if (state == BlockState::kFree) {
    Settle(block);
  } else {
    Enter(block);
  }
}

void Heap::Open(Block* block) {
  COMMPOOL_CHECK(block->state == BlockState::kAwaitingFences || block->state == BlockState::kDeferred,
                 "a block is opened that is not closed");
  Leave(block);
  block->state = BlockState::kFree;
  Settle(block);
}

Block* Heap::ChangeUses(Block* block, const std::function<void(std::vector<Use>&)>& change) {
  COMMPOOL_CHECK(block->state != BlockState::kLive, "the uses of a live block are its allocation's");
  Leave(block);
  change(block->uses);
  if (block->state == BlockState::kFree) return Settle(block);
  Enter(block);
  return block;
}

Block* Heap::Find(Address address) const {
  const HeapSegment* segment = page_map_.Find(address);
  if (segment == nullptr) return nullptr;
  // Blocks cover the segment, so the last that starts at or before the address holds it.
  return *std::prev(segment->blocks.upper_bound(address - segment->range.address));
}

bool Heap::Mergeable(const Block& a, const Block& b) const {
  if (a.state != b.state || a.part != b.part) return false;
  if (a.state == BlockState::kUnmapped) return true;
  if (a.state != BlockState::kFree) return false;
  const bool compatible = policy_ == MergePolicy::kCompatible && (a.uses.empty() || b.uses.empty());
  return policy_ == MergePolicy::kAlways || compatible || a.uses == b.uses;
}

bool Heap::Holds(const Block& block) {
  if (block.state == BlockState::kUnmapped) return false;
  return block.state != BlockState::kFree || block.part != kCommonPart;
}

void Heap::Enter(Block* block) {
  if (block->state == BlockState::kFree) free_index_.Insert(block);
  if (IsPending(*block)) pending_bytes_ += block->bytes;
  if (IsHole(*block)) unmapped_bytes_ += block->bytes;
  if (Holds(*block)) ++block->segment->held_blocks;
  fences_.Link(block);
}

void Heap::Leave(Block* block) {
  if (block->state == BlockState::kFree) free_index_.Erase(block);
  if (IsPending(*block)) pending_bytes_ -= block->bytes;
  if (IsHole(*block)) unmapped_bytes_ -= block->bytes;
  if (Holds(*block)) --block->segment->held_blocks;
  fences_.Unlink(block);
}

Block* Heap::Settle(Block* block) {
  if (block->previous != nullptr && Mergeable(*block->previous, *block)) {
    Block* lower = block->previous;
    Leave(lower);
    Absorb(lower, block);
    block = lower;
  }
  if (block->next != nullptr && Mergeable(*block, *block->next)) {
    Leave(block->next);
    Absorb(block, block->next);
  }
  Enter(block);
  return block;
}

void Heap::Absorb(Block* lower, Block* upper) {
  EraseBlock(lower->segment->blocks, upper, spare_);
  lower->bytes += upper->bytes;
  lower->freed_at = std::max(lower->freed_at, upper->freed_at);
  UniteUses(lower->uses, upper->uses);
  lower->next = upper->next;
  if (lower->next != nullptr) lower->next->previous = lower;
  arena_.Recycle(upper);
}

Block* Heap::Split(Block* block, uint64_t bytes) {
  Block* rest = arena_.Make();
  rest->segment = block->segment;
  rest->offset = block->offset + bytes;
  rest->bytes = block->bytes - bytes;
  rest->stream = block->stream;
  rest->freed_at = block->freed_at;
  rest->part = block->part;
  rest->state = block->state;
  rest->uses = block->uses;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  InsertBlock(rest->segment->blocks, rest, spare_);
  return rest;
}

void Heap::Unify(StreamKey stream) {
  const auto usable = [&](const Block& block) {
    return block.state == BlockState::kFree && block.part == kCommonPart &&
           std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
  };
  for (const auto& [index, segment] : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      while (usable(*block) && block->next != nullptr && usable(*block->next)) {
        Leave(block);
        Leave(block->next);
        Absorb(block, block->next);
        Enter(block);
      }
    }
  }
}

void Heap::ReleasePart(Part part) {
  for (const auto& [index, segment] : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->part != part) continue;
      if (block->state == BlockState::kLive) {
        block->part = kCommonPart;
        continue;
      }
      Leave(block);
      block->part = kCommonPart;
      block->uses.clear();
      if (block->state != BlockState::kFree) {
        Enter(block);
        continue;
      }
      block = Settle(block);
    }
  }
}

void Heap::Convert(const SegmentRange& range, BlockState from, BlockState to) {
  Block* block = Find(range.address);
  COMMPOOL_CHECK(block != nullptr && block->state == from && block->part == kCommonPart,
                 "memory changes its state that has another");
  const uint64_t before = range.address - AddressOf(*block);
  COMMPOOL_CHECK(before + range.bytes <= block->bytes, "memory changes its state that is no one block");
  Leave(block);
  if (before > 0) {
    Block* const lower = block;
    block = Split(block, before);
    Enter(lower);
  }
  if (block->bytes > range.bytes) Enter(Split(block, range.bytes));
  block->state = to;
  block->uses.clear();
  Settle(block);
}

}  // namespace commpool::internal::engine
