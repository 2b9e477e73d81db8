#include "src/library/engine/caching_engine.h"

#include <algorithm>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::internal::engine {

namespace {

// A new segment has as many blocks as go into this share of the pool (one part in 256), where those are several. So
// even a program with very many blocks has few segments, and equal blocks leave no rest.
constexpr uint64_t kPoolShare = 256;
constexpr uint64_t kSeveral = 4;

}  // namespace

Block* CachingEngine::TakeGathered(Fit fit) {
  Gather(fit.stream, fit.part);
  Block* const block = own_heap().Take(fit);
  const bool spares_growth = fit.reuse == Reuse::kAnyStream || fit.part != kCommonPart;
  if (block != nullptr || fit.space == Space::kLarge || !(spares_growth || reserved_)) return block;
  fit.space = Space::kLarge;
  return own_heap().Take(fit);
}

Result<Outcome> CachingEngine::Allocate(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(bytes, options()));
  Block* const block = Take({sizes.block_bytes, stream, ReuseFor(reuse), sizes.space, part});
  if (block == nullptr) return Outcome(Grow{sizes.segment_bytes, sizes.space});
  return Outcome(Serve(block, stream, bytes));
}

[[gnu::flatten]] SegmentRange CachingEngine::AllocateOwn(uint64_t bytes, StreamKey stream) {
  const std::optional<uint64_t> block_bytes = BlockBytesOf(bytes, options());
  if (!block_bytes) return {};
  Block* const block =
      Take({*block_bytes, stream, ReuseFor(Reuse::kSameStream), SpaceOf(*block_bytes, options().spaces)});
  return block == nullptr ? SegmentRange() : ServeOwn(block, stream, bytes);
}

Result<Grow> CachingEngine::GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(bytes, options()));
  Fit fit{sizes.block_bytes, stream, ReuseFor(reuse), sizes.space, part};
  if (own_heap().FindFree(fit) != nullptr) return Grow{};
  Gather(stream, part);
  if (own_heap().FindFree(fit) != nullptr) return Grow{};
  if (part != kCommonPart || reserved_) fit.space = Space::kLarge;
  return own_heap().FindFree(fit) != nullptr ? Grow{} : Grow{sizes.segment_bytes, sizes.space};
}

Result<GrowthPlan> CachingEngine::PlanGrowth(GrowthRequest& request) {
  using Kind = GrowthStep::Kind;
  const Grow grow = COMMPOOL_TRY(GrowthFor(request.bytes, request.stream, Reuse::kSameStream, request.part));
  if (grow.bytes == 0) return GrowthPlan();
  const bool makes_way = request.effort != Effort::kReserve && request.part == kCommonPart && !request.capturing;
  if (makes_way && !std::exchange(request.asked, true)) return GrowthPlan({Kind::kAsk});
  GrowthPlan plan;
  GrowthStep make{.kind = Kind::kMakeSegment, .range = {0, grow.bytes}, .space = grow.space, .part = request.part};
  // The block, which may be larger than the request: a segment without room for it would be made again and again.
  const RequestSizes sizes = COMMPOOL_TRY(SizesOf(request.bytes, options()));
  make.least_bytes = RoundUp(std::max(sizes.block_bytes, options().segment_bytes), options().granularity);
  if (options().segment_bytes == 0 && options().segment_sizes == SegmentSizes::kRoomy) {
    const uint64_t blocks = sums().reserved_bytes.current / kPoolShare / sizes.block_bytes;
    if (blocks >= kSeveral) {
      const uint64_t bytes = RoundUp(blocks * sizes.block_bytes, options().granularity);
      make.range.bytes = std::max(make.range.bytes, bytes);
    }
  }
  if (makes_way) plan.steps = MakeWay(request, make.range.bytes);
  plan.steps.push_back(make);
  return plan;
}

std::vector<GrowthStep> CachingEngine::MakeWay(const GrowthRequest& request, uint64_t bytes) {
  std::vector<GrowthStep> steps;
  uint64_t room = reserved_ ? 0 : bytes;
  uint64_t excess = request.Excess(bytes);
  for (const SegmentIndex index : LongestUnusedSegments()) {
    if (!IsIdle(index) || (request.pinned != nullptr && request.pinned(index))) continue;
    const uint64_t gone = own_heap().segments().at(index)->range.bytes;
    if (gone > room && excess == 0) continue;
    room -= std::min(room, gone);
    excess -= std::min(excess, gone);
    steps.push_back({.kind = GrowthStep::Kind::kRelease, .range = {0, gone}, .segment = index});
  }
  return steps;
}

[[gnu::flatten]] Result<Freed> CachingEngine::Free(Address address, Reasons also) {
  Block* const block = LiveBlock(address);
  if (block == nullptr) return NotLive("free", address);
  if (block->part == kCommonPart) return Close(block, Fencing::kCloses, also);
  // No fence can be recorded on a stream that captures. So a block that several streams used stays in the graph's part,
  // and serves nobody there.
  Freed freed = Close(block, Fencing::kAwaits, also);
  freed.missing.clear();
  return freed;
}

std::vector<SegmentIndex> CachingEngine::LongestUnusedSegments() const {
  std::vector<SegmentIndex> unused = WhollyFreeSegments();
  const auto last_touched = [&](SegmentIndex index) { return heap().segments().at(index)->last_touched; };
  std::ranges::stable_sort(unused, {}, last_touched);
  return unused;
}

}  // namespace commpool::internal::engine
