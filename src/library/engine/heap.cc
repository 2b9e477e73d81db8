#include "src/library/engine/heap.h"

#include <iterator>

#include "src/library/base/bytes.h"
#include "src/library/engine/size_policy.h"

namespace commpool::internal::engine {
namespace {

// The constants come from recorded and synthetic traces. These rules were no better, or worse: lowest fit; small blocks
// apart; tightest fit within 10 %; no small splinters; neighbours of equal age or lifetime.

// A block of at least this share of its segment counts as one of the very largest.
constexpr uint64_t kLargestShare = 6;

enum class Likeness { kAboutTwice, kNone, kLike };

// Compares a block with a neighbour (null at the segment's end). Alike: up to 1.5 times as large or small. About twice:
// up to 2.2 times.
Likeness LikenessTo(const Block* neighbour, uint64_t bytes) {
  if (neighbour == nullptr) return Likeness::kNone;
  const uint64_t less = std::min(neighbour->bytes, bytes);
  const uint64_t excess = std::max(neighbour->bytes, bytes) - less;
  if (excess < less / 2) return Likeness::kLike;
  return excess < less / 5 * 6 ? Likeness::kAboutTwice : Likeness::kNone;
}

// Whether a request that waits may take the block, whoever used it.
bool IsUnitable(const Block& block, Space space) {
  return block.state == BlockState::kFree && block.part == kCommonPart && block.segment->space == space &&
         !IsStranded(block);
}

}  // namespace

CutSide CutSideFor(uint64_t bytes, const Block& free) {
  if (free.previous == nullptr && free.next == nullptr) return CutSide::kLow;
  const Likeness below = LikenessTo(free.previous, bytes);
  const Likeness above = LikenessTo(free.next, bytes);
  if (below != above) return above > below ? CutSide::kHigh : CutSide::kLow;
  const bool largest = bytes > free.segment->range.bytes / kLargestShare;
  return largest || bytes <= kSmallBytes ? CutSide::kLow : CutSide::kHigh;
}

Heap::Heap(uint64_t alignment, MergePolicy policy, Choice choice)
    : alignment_(alignment), policy_(policy), choice_(choice), free_index_(choice) {
  COMMPOOL_CHECK(IsPowerOfTwo(alignment), "the alignment of blocks is no power of two");
}

SegmentIndex Heap::AddSegment(const SegmentRange& range, Space space, BlockState state, Part part) {
  COMMPOOL_CHECK(range.address % alignment_ == 0 && range.bytes % alignment_ == 0,
                 "a segment's address or size is no multiple of the pool's alignment");
  COMMPOOL_CHECK(range.bytes > 0 && CheckedAdd(range.address, range.bytes - 1), "a segment is empty or wraps around");
  const auto next = segments_by_address_.lower_bound(range.address);
  COMMPOOL_CHECK((next == segments_by_address_.end() || next->first - range.address >= range.bytes) &&
                     SegmentAt(range.address) == nullptr,
                 "two segments overlap");
  Block* const block = arena_.Make();
  auto owner = std::make_unique<HeapSegment>(HeapSegment{next_index_++, range, block, space});
  HeapSegment* const segment = owner.get();
  segments_by_address_.emplace_hint(next, range.address, segment);
  segments_.emplace(segment->index, std::move(owner));
  *block = {.segment = segment, .bytes = range.bytes, .part = part, .state = state};
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
  segments_by_address_.erase(range.address);
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

// This and Close are most of the way of a large block, in one function each: calls would be a quarter of it.
[[gnu::flatten]] Block* Heap::Take(const Fit& fit) {
  COMMPOOL_CHECK(fit.bytes > 0 && (fit.bytes & (alignment_ - 1)) == 0, "a block is asked for that was not rounded up");
  Block* block = FindFree(fit);
  if (block == nullptr) return nullptr;
  if (block->bytes == fit.bytes) {
    Leave(block);
  } else {
    block = Cut(block, fit.bytes);
  }
  block->part = fit.part;
  block->state = BlockState::kLive;
  ++block->segment->held_blocks;
  return block;
}

// Even a tiny remainder becomes a free block: it merges when its neighbour is freed.
inline Block* Heap::Cut(Block* block, uint64_t bytes) {
  const bool pending = IsPending(*block);
  if (pending) LeavePending(block);
  const bool high = choice_ == Choice::kBesideItsLike && CutSideFor(bytes, *block) == CutSide::kHigh;
  Block* const upper = Split(block, high ? block->bytes - bytes : bytes);
  Block* const rest = high ? block : upper;
  free_index_.Shrink(block, rest);
  if (pending) EnterPending(rest);
  return high ? upper : block;
}

Block* Heap::FindFree(const Fit& fit) const {
  Block* const block = free_index_.Find(fit);
  if (block != nullptr || fit.part == kCommonPart) return block;
  return free_index_.Find({.bytes = fit.bytes, .reuse = Reuse::kIdle, .space = fit.space});  // of the whole pool
}

[[gnu::flatten]] void Heap::Close(Block* block, Reasons reasons) {
  COMMPOOL_CHECK(block->state == BlockState::kLive, "a block is closed that is not live");
  --block->segment->held_blocks;
  block->segment->last_touched = block->freed_at;
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

HeapSegment* Heap::SegmentAt(Address address) const {
  const auto after = segments_by_address_.upper_bound(address);
  if (after == segments_by_address_.begin()) return nullptr;
  HeapSegment* const segment = std::prev(after)->second;
  return address - segment->range.address < segment->range.bytes ? segment : nullptr;
}

// Blocks cover the segment without gaps. Two ways go to the block at once, and the shorter one ends: from the segment's
// first block upwards, and from the address down to the next place where a block begins. It is seldom asked for, while
// every cut and merge would have to change an index.
Block* Heap::Find(Address address) const {
  Address probe = address & ~(alignment_ - 1);
  if (Block* const block = starts_.Find(probe)) return block;
  const HeapSegment* const segment = SegmentAt(address);
  if (segment == nullptr) return nullptr;
  for (Block* block = segment->first;; block = block->next) {
    if (address - AddressOf(*block) < block->bytes) return block;
    probe -= alignment_;
    if (Block* const below = starts_.Find(probe)) return below;
  }
}

bool Heap::MergeableUses(const Block& a, const Block& b) const {
  if (policy_ != MergePolicy::kCompatible) return policy_ == MergePolicy::kAlways;
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
  starts_.Insert(AddressOf(*rest), rest);
  return rest;
}

template <typename Usable>
void Heap::UnifyWhere(Usable usable) {
  ForEach([&](Block& block) {
    if (!usable(block)) return;
    while (block.next != nullptr && usable(*block.next)) {
      Leave(&block);
      Leave(block.next);
      Absorb(&block, block.next);
      Enter(&block);
    }
  });
}

// Idle neighbours are one block already. So nothing merges, and there is no walk over all blocks, where the stream has
// no free block of its own.
void Heap::Unify(StreamKey stream, Part part) {
  using Kind = UseClass::Kind;
  const FreeIndex& index = free_index_;
  const auto has_own = [&](Space space, Kind kind) {
    const auto list = index.lists().find({part, space, kind, stream});
    return list != index.lists().end() && !list->second.blocks.empty();
  };
  const auto has = [&](Space space) { return has_own(space, Kind::kOneStream) || has_own(space, Kind::kOneStranded); };
  if (!has(Space::kSmall) && !has(Space::kLarge)) return;
  UnifyWhere([&](const Block& block) {
    return block.state == BlockState::kFree && block.part == part &&
           !block.uses.Any([&](const Use& use) { return use.stream != stream; });
  });
}

void Heap::UnifyAll(Space space) {
  UnifyWhere([&](const Block& block) { return IsUnitable(block, space); });
}

uint64_t Heap::LargestUnited(Space space) const {
  uint64_t largest = 0;
  uint64_t together = 0;
  ForEach([&](const Block& block) {
    if (block.previous == nullptr) together = 0;
    together = IsUnitable(block, space) ? together + block.bytes : 0;
    largest = std::max(largest, together);
  });
  return largest;
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
  if (claimant.stream) block->uses.push_back({*claimant.stream, kNoFence, kNoMoment});
  EnterMerged(block);
}

}  // namespace commpool::internal::engine
