#include "src/library/engine/heap.h"

#include <algorithm>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/engine/size_policy.h"

namespace commpool::internal::engine {

Heap::Heap(uint64_t alignment, MergePolicy policy, Choice choice, Spaces spaces)
    : alignment_(alignment), policy_(policy), choice_(choice), spaces_(spaces), free_index_(choice) {
  COMMPOOL_CHECK(IsPowerOfTwo(alignment), "the alignment of blocks is no power of two");
}

SegmentIndex Heap::AddSegment(const SegmentRange& range, Space space, BlockState state, Part part) {
  COMMPOOL_CHECK(range.address % alignment_ == 0 && range.bytes % alignment_ == 0,
                 "a segment's address or size is no multiple of the pool's alignment");
  auto owner = std::make_unique<HeapSegment>();
  HeapSegment* segment = owner.get();
  page_map_.Insert(range, segment);
  segment->index = next_index_++;
  segment->range = range;
  segment->space = space;
  segment->indexed = space == Space::kSmall || spaces_ == Spaces::kOne;
  segments_.emplace(segment->index, std::move(owner));

  Block* block = arena_.Make();
  *block = {.segment = segment, .bytes = range.bytes, .part = part, .state = state};
  segment->first = block;
  if (segment->indexed) segment->blocks.Insert(block->offset, block);
  starts_.Insert(range.address, block);
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
    starts_.Erase(AddressOf(*block));
    arena_.Recycle(block);
    block = next;
  }
  page_map_.Erase(range.address);
  segments_.erase(found);
  return range;
}

void Heap::BeginAgain() {
  COMMPOOL_CHECK(segments_.empty(), "a heap begins again that still has segments");
  next_index_ = 0;
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
  COMMPOOL_CHECK(fit.bytes > 0 && (fit.bytes & (alignment_ - 1)) == 0, "a block is asked for that was not rounded up");
  Block* block = FindFree(fit);
  if (block == nullptr) return nullptr;
  Leave(block);
  // Even a tiny remainder becomes a free block: it merges when its neighbour is freed.
  if (block->bytes > fit.bytes) {
    const bool high = choice_ == Choice::kBesideItsLike && CutSideFor(fit.bytes, *block) == CutSide::kHigh;
    Block* const upper = Split(block, high ? block->bytes - fit.bytes : fit.bytes);
    Enter(high ? block : upper);
    if (high) block = upper;
  }
  block->part = fit.part;
  block->state = BlockState::kLive;
  ++block->segment->held_blocks;
  return block;
}

Block* Heap::FindFree(const Fit& fit) const {
  Block* const block = free_index_.Find(fit);
  if (block != nullptr || fit.part == kCommonPart) return block;
  Fit idle = fit;
  idle.reuse = Reuse::kIdle;
  idle.part = kCommonPart;
  return free_index_.Find(idle);
}

void Heap::Close(Block* block, Reasons reasons) {
  COMMPOOL_CHECK(block->state == BlockState::kLive, "a block is closed that is not live");
  --block->segment->held_blocks;
  block->segment->last_touched = ++touches_;
  block->marks = 0;
  block->state = BlockState::kFree;
  if (reasons != 0) {
    block->state = BlockState::kClosed;
    block->closed_by = reasons;
    block->closed_place = static_cast<uint32_t>(closed_.size());
    closed_.push_back(block);
  }
  EnterMerged(block);
}

void Heap::EndReason(Block* block, Reason reason) {
  COMMPOOL_CHECK(IsClosedBy(*block, reason), "a reason ends that closes no block");
  block->closed_by &= static_cast<Reasons>(~ReasonsOf(reason));
  if (block->closed_by != 0) return;
  closed_[block->closed_place] = closed_.back();
  closed_[block->closed_place]->closed_place = block->closed_place;
  closed_.pop_back();
  Leave(block);
  block->state = BlockState::kFree;
  EnterMerged(block);
}

Block* Heap::Find(Address address) const {
  if (Block* const block = starts_.Find(address)) return block;
  const HeapSegment* segment = page_map_.Find(address);
  if (segment == nullptr) return nullptr;
  // Blocks cover the segment without gaps, so the last one that starts at or before the address holds it.
  const uint64_t offset = address - segment->range.address;
  if (segment->indexed) return segment->blocks.LastUpTo(offset)->block;
  Block* block = segment->first;
  while (block->next != nullptr && block->next->offset <= offset) block = block->next;
  return block;
}

bool Heap::Mergeable(const Block& a, const Block& b) const {
  if (a.state != b.state || a.part != b.part) return false;
  if (a.state != BlockState::kFree) return a.state == BlockState::kUnmapped;
  if (policy_ == MergePolicy::kAlways || a.uses == b.uses) return true;
  if (policy_ == MergePolicy::kSameUses) return false;
  // Idle memory beside stranded memory must stay usable by everybody.
  return (a.uses.empty() && !IsStranded(b)) || (b.uses.empty() && !IsStranded(a));
}

Block* Heap::EnterMerged(Block* block) {
  if (block->state != BlockState::kFree && block->state != BlockState::kUnmapped) {
    Enter(block);
    return block;
  }
  Block* const lower = block->previous != nullptr && Mergeable(*block->previous, *block) ? block->previous : nullptr;
  // The lower neighbour comes first: the upper one merges only if it fits what these two become.
  const Block& together = lower != nullptr && block->uses.empty() ? *lower : *block;
  Block* const upper = block->next != nullptr && Mergeable(together, *block->next) ? block->next : nullptr;
  if (upper != nullptr) {
    Leave(upper);
    Absorb(block, upper);
  }
  if (lower != nullptr) {
    Leave(lower);
    Absorb(lower, block);
  }
  Block* const whole = lower != nullptr ? lower : block;
  Enter(whole);
  return whole;
}

void Heap::Absorb(Block* lower, Block* upper) {
  if (lower->segment->indexed) lower->segment->blocks.Erase(upper->offset);
  starts_.Erase(AddressOf(*upper));
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
  if (rest->segment->indexed) rest->segment->blocks.Insert(rest->offset, rest);
  starts_.Insert(AddressOf(*rest), rest);
  return rest;
}

template <typename Usable>
void Heap::UnifyIn(HeapSegment& segment, Usable usable) {
  for (Block* block = segment.first; block != nullptr; block = block->next) {
    if (!usable(*block)) continue;
    while (block->next != nullptr && usable(*block->next)) {
      Leave(block);
      Leave(block->next);
      Absorb(block, block->next);
      Enter(block);
    }
  }
}

void Heap::Unify(StreamKey stream, Part part) {
  for (const auto& [index, segment] : segments_) {
    UnifyIn(*segment, [&](const Block& block) {
      return block.state == BlockState::kFree && block.part == part &&
             std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
    });
  }
}

void Heap::UnifyAll(Space space) {
  for (const auto& [index, segment] : segments_) {
    if (segment->space != space) continue;
    UnifyIn(*segment, [](const Block& block) {
      return block.state == BlockState::kFree && block.part == kCommonPart && !IsStranded(block);
    });
  }
}

uint64_t Heap::LargestUnited(Space space) const {
  uint64_t largest = 0;
  for (const auto& [index, segment] : segments_) {
    if (segment->space != space) continue;
    uint64_t together = 0;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const bool usable = block->state == BlockState::kFree && block->part == kCommonPart && !IsStranded(*block);
      together = usable ? together + block->bytes : 0;
      largest = std::max(largest, together);
    }
  }
  return largest;
}

void Heap::ClosePart(Part part) {
  for (const auto& [index, segment] : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->part != part || block->state != BlockState::kFree || block->uses.empty()) continue;
      Leave(block);
      block->uses.clear();
      block = EnterMerged(block);
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
      block = EnterMerged(block);
    }
  }
}

void Heap::LeavePart(Block* block) {
  COMMPOOL_CHECK(block->state != BlockState::kFree, "free memory of a part is the heap's to release");
  block->part = kCommonPart;
}

void Heap::Convert(const SegmentRange& range, BlockState from, BlockState to, const Claimant& claimant) {
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
  block->part = claimant.part;
  if (claimant.stream) block->uses.push_back({*claimant.stream, kNoFence, kNoBlock});
  EnterMerged(block);
}

}  // namespace commpool::internal::engine
