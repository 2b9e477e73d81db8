#include "src/library/engine/heap.h"

#include <algorithm>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/engine/size_policy.h"

namespace commpool::internal::engine {

Heap::Heap(uint64_t alignment, MergePolicy policy, size_t resting_blocks, Spaces spaces)
    : alignment_(alignment), policy_(policy), spaces_(spaces), resting_(resting_blocks) {
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
  block->segment = segment;
  block->bytes = range.bytes;
  block->state = state;
  block->part = part;
  segment->first = block;
  if (segment->indexed) segment->blocks.Insert(block->offset, block);
  starts_.Insert(range.address, block);
  NoteMoreFree(space);
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
    if (block->state == BlockState::kResting) resting_.Remove(block);
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
  histories_ = {};
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
  if (Block* const rested = TakeResting(fit)) return MakeLive(rested, fit.part);
  // Resting blocks are large, so a search among small blocks need not merge them.
  if (fit.space == Space::kLarge) MergeResting();
  Block* block = FindFree(fit);
  if (block == nullptr) return nullptr;
  // Even a tiny remainder becomes a free block: it merges when its neighbour is freed.
  if (block->bytes > fit.bytes) {
    block =
        CutFree(block, fit.bytes, fit.choice == Choice::kBesideItsLike ? CutSideFor(fit.bytes, *block) : CutSide::kLow);
  } else {
    Leave(block);
  }
  block->placement = HistoryOf(*block).Note();
  return MakeLive(block, fit.part);
}

Block* Heap::FindFree(const Fit& fit) const {
  Block* const block = free_index_.Find(fit);
  if (block != nullptr || fit.part == kCommonPart) return block;
  Fit idle = fit;
  idle.reuse = Reuse::kIdle;
  idle.part = kCommonPart;
  return free_index_.Find(idle);
}

Block* Heap::MakeLive(Block* block, Part part) {
  block->part = part;
  block->state = BlockState::kLive;
  ++block->segment->held_blocks;
  return block;
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
    Enter(block);
  } else if (MayRest(*block)) {
    HistoryOf(*block).NoteFree(block->placement);
    block->state = BlockState::kResting;
    if (resting_.full()) MergeRestingBlock(resting_.oldest());
    if (IsPending(*block)) Enter(block);  // a resting block is in no other book
    resting_.Add(block);
  } else {
    HistoryOf(*block).NoteFree(block->placement);
    EnterMerged(block);
  }
}

bool Heap::MayRest(const Block& block) const {
  return resting_.enabled() && HistoryOf(block).IsCurrent(block.placement) && block.bytes > kSmallBytes &&
         block.part == kCommonPart;
}

Block* Heap::TakeResting(const Fit& fit) {
  if (resting_.empty() || fit.part != kCommonPart) return nullptr;
  Block* const block = resting_.TakeLast([&](const Block& rested) {
    if (rested.bytes != fit.bytes || rested.segment->space != fit.space) return false;
    if (!HistoryOf(rested).IsCurrent(rested.placement)) return false;
    if (fit.reuse == Reuse::kAnyUse || (fit.reuse == Reuse::kAnyStream && !IsStranded(rested))) return true;
    return std::all_of(rested.uses.begin(), rested.uses.end(),
                       [&](const Use& use) { return fit.reuse != Reuse::kIdle && use.stream == fit.stream; });
  });
  if (block != nullptr && IsPending(*block)) Leave(block);
  return block;
}

void Heap::MergeRestingBlock(Block* block) {
  resting_.Remove(block);
  Leave(block);
  block->state = BlockState::kFree;
  EnterMerged(block);
}

void Heap::MergeResting() {
  while (!resting_.empty()) MergeRestingBlock(resting_.oldest());
}

uint64_t Heap::LargestFree() const {
  uint64_t largest = free_index_.LargestBytes();
  for (const Block* block : resting_) {
    // Asks each pair of neighbours by itself. So it counts three blocks even where the merge of two would keep the
    // third away.
    const auto merges = [&](const Block& a, const Block& b) {
      return IsFreeMemory(a) && IsFreeMemory(b) && UsesMerge(a, b);
    };
    const Block* first = block;
    while (first->previous != nullptr && merges(*first->previous, *first)) first = first->previous;
    uint64_t bytes = first->bytes;
    for (; first->next != nullptr && merges(*first, *first->next); first = first->next) bytes += first->next->bytes;
    largest = std::max(largest, bytes);
  }
  return largest;
}

void Heap::EndReason(Block* block, Reason reason) {
  COMMPOOL_CHECK(IsClosedBy(*block, reason), "a reason ends that closes no block");
  block->closed_by &= static_cast<Reasons>(~ReasonsOf(reason));
  if (block->closed_by == 0) Open(block);
}

void Heap::Open(Block* block) {
  closed_[block->closed_place] = closed_.back();
  closed_[block->closed_place]->closed_place = block->closed_place;
  closed_.pop_back();
  Leave(block);
  block->state = BlockState::kFree;
  NoteMoreFree(block->segment->space);
  EnterMerged(block);
}

void Heap::LeaveToChange(Block* block) {
  COMMPOOL_CHECK(block->state != BlockState::kLive, "the uses of a live block are its allocation's");
  Leave(block);
}

Block* Heap::EnterChanged(Block* block) {
  if (policy_ != MergePolicy::kAlways) NoteMoreFree(block->segment->space);
  if (block->state == BlockState::kFree) return EnterMerged(block);
  Enter(block);
  return block;
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
  if (a.state != b.state) return false;
  if (a.state == BlockState::kUnmapped) return a.part == b.part;
  return a.state == BlockState::kFree && UsesMerge(a, b);
}

bool Heap::UsesMerge(const Block& a, const Block& b) const {
  if (a.part != b.part) return false;
  if (policy_ == MergePolicy::kAlways) return true;
  if (policy_ == MergePolicy::kSameUses) return a.uses == b.uses;
  // Idle memory beside stranded memory must stay usable by everybody.
  if (a.uses.empty()) return !IsStranded(b);
  if (b.uses.empty()) return !IsStranded(a);
  return a.uses == b.uses;
}

bool Heap::Holds(const Block& block) {
  if (block.state == BlockState::kUnmapped) return false;
  return !IsFreeMemory(block) || block.part != kCommonPart;
}

void Heap::Enter(Block* block) {
  if (block->state == BlockState::kFree) free_index_.Insert(block);
  if (Holds(*block)) ++block->segment->held_blocks;
  if (!IsPending(*block)) return;
  pending_bytes_ += block->bytes;
  fences_.Link(block);
}

void Heap::Leave(Block* block) {
  if (block->state == BlockState::kFree) free_index_.Erase(block);
  if (Holds(*block)) --block->segment->held_blocks;
  if (!IsPending(*block)) return;
  pending_bytes_ -= block->bytes;
  fences_.Unlink(block);
}

Block* Heap::CutFree(Block* block, uint64_t bytes, CutSide side) {
  const uint64_t lower_bytes = side == CutSide::kLow ? bytes : block->bytes - bytes;
  Leave(block);
  Block* const upper = Split(block, lower_bytes);
  Enter(side == CutSide::kLow ? upper : block);
  return side == CutSide::kLow ? block : upper;
}

Block* Heap::EnterMerged(Block* block) {
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
  MergeResting();
  for (PlacementHistory& history : histories_) history.NoteOther();
  for (const auto& [index, segment] : segments_) {
    UnifyIn(*segment, [&](const Block& block) {
      return block.state == BlockState::kFree && block.part == part &&
             std::all_of(block.uses.begin(), block.uses.end(), [&](const Use& use) { return use.stream == stream; });
    });
  }
}

void Heap::UnifyAll(Space space) {
  MergeResting();
  histories_[static_cast<size_t>(space)].NoteOther();
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
      const bool usable = IsFreeMemory(*block) && block->part == kCommonPart && !IsStranded(*block);
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
  MergeResting();
  for (PlacementHistory& history : histories_) history.NoteOther();
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
  COMMPOOL_CHECK(!IsFreeMemory(*block), "free memory of a part is the heap's to release");
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
  NoteMoreFree(block->segment->space);
  EnterMerged(block);
}

}  // namespace commpool::internal::engine
