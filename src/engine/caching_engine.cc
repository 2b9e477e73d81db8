#include "src/engine/caching_engine.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/engine/invariants.h"

namespace commpool::internal::engine {

namespace {

// A segment is at least this part of the pool, so that few are made however many blocks a program has.
constexpr uint64_t kPoolShare = 256;

}  // namespace

CachingEngine::CachingEngine(const EngineOptions& options) : options_(options), ledger_(options) {
  CheckOptions(options);
}

Result<Outcome> CachingEngine::Allocate(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  Request request{bytes, sizes->block_bytes, stream, reuse, sizes->space, part, ChoiceFor(sizes->space)};
  std::optional<Served> served = ledger().Serve(request);
  if (!served) {
    ledger().Unify(stream, part);
    served = ledger().Serve(request);
  }
  const bool spares_growth = reuse == Reuse::kAnyStream || part != kCommonPart;
  if (!served && sizes->space == Space::kSmall && (spares_growth || reserved_)) {
    request.space = Space::kLarge;
    served = ledger().Serve(request);
  }
  if (!served) return Outcome(Grow{sizes->segment_bytes, sizes->space, part});
  return Outcome(std::move(*served));
}

Result<SegmentRange> CachingEngine::AllocateOwn(uint64_t bytes, StreamKey stream) {
  const Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  Request request{bytes, sizes->block_bytes, stream, Reuse::kSameStream, sizes->space};
  request.choice = ChoiceFor(sizes->space);
  SegmentRange served = ledger().ServeOwn(request);
  if (served.bytes != 0) return served;
  ledger().Unify(stream, kCommonPart);
  served = ledger().ServeOwn(request);
  if (served.bytes != 0 || sizes->space == Space::kLarge || !reserved_) return served;
  request.space = Space::kLarge;
  return ledger().ServeOwn(request);
}

Result<Grow> CachingEngine::GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  ledger().Wake();
  Fit fit{sizes->block_bytes, stream, reuse, sizes->space, part};
  if (ledger().CanServe(fit)) return Grow{};
  ledger().Unify(stream, part);
  if (ledger().CanServe(fit)) return Grow{};
  if (part != kCommonPart || reserved_) fit.space = Space::kLarge;
  return ledger().CanServe(fit) ? Grow{} : Grow{sizes->segment_bytes, sizes->space, part};
}

Result<GrowthPlan> CachingEngine::PlanGrowth(GrowthRequest& request) {
  using Kind = GrowthStep::Kind;
  const Result<Grow> grow = GrowthFor(request.bytes, request.stream, Reuse::kSameStream, request.part);
  if (!grow.ok()) return grow.status();
  if (grow->bytes == 0) return GrowthPlan();
  const bool makes_way = request.effort != Effort::kReserve && request.part == kCommonPart && !request.capturing;
  if (makes_way && !std::exchange(request.asked, true)) return GrowthPlan({Kind::kAsk});
  GrowthPlan plan;
  GrowthStep make{Kind::kMakeSegment, {0, grow->bytes}, 1, grow->space, request.part};
  make.least_bytes = RoundUp(std::max(request.bytes, options_.segment_bytes), options_.granularity);
  if (options_.segment_bytes == 0) {
    const uint64_t share = ledger().sums().reserved_bytes.current / kPoolShare;
    make.range.bytes = std::max(make.range.bytes, RoundDown(share, options_.granularity));
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
    const uint64_t gone = ledger().heap().segments().at(index)->range.bytes;
    if (gone > room && excess == 0) continue;
    room -= std::min(room, gone);
    excess -= std::min(excess, gone);
    steps.push_back({.kind = GrowthStep::Kind::kRelease, .range = {0, gone}, .segment = index});
  }
  return steps;
}

Result<Freed> CachingEngine::Free(Address address) {
  Result<Closed> closed = ledger().Close(address, Disposal::kAwaitFences);
  if (!closed.ok()) return closed.status();
  return std::move(closed->freed);
}

Result<Freed> CachingEngine::FreeInPart(Address address) {
  // Nothing may be recorded on streams that are captured: what several streams used stays with the graph, unused.
  Result<Closed> closed = ledger().Close(address, Disposal::kFreeAtOnce);
  if (!closed.ok()) return closed.status();
  return std::move(closed->freed);
}

void CachingEngine::AttachFence(Address address, StreamKey stream, Fence fence) {
  COMMPOOL_CHECK(ledger().AttachFence(address, stream, fence), "a fence is attached that no free asked for");
}

Status CachingEngine::RecordStream(Address address, StreamKey stream) { return ledger().RecordStream(address, stream); }

void CachingEngine::FencePassed(Fence fence) { ledger().FencePassed(fence); }

void CachingEngine::DeviceIdle(Moment moment) { ledger().DeviceIdle(moment); }

void CachingEngine::ForgetStream(StreamKey stream) { ledger().ForgetStream(stream); }

ReservedVector<Fence> CachingEngine::PendingFences() const { return ledger().PendingFences(); }

SegmentIndex CachingEngine::AddSegment(const SegmentRange& range, Space space, Part part) {
  return ledger().AddSegment(range, space, part);
}

SegmentRange CachingEngine::RemoveSegment(SegmentIndex segment) { return ledger().RemoveSegment(segment); }

std::vector<SegmentIndex> CachingEngine::WhollyFreeSegments() const { return ledger().heap().WhollyFreeSegments(); }

std::vector<SegmentIndex> CachingEngine::LongestUnusedSegments() const {
  std::vector<SegmentIndex> unused = WhollyFreeSegments();
  const auto& segments = ledger().heap().segments();
  std::stable_sort(unused.begin(), unused.end(), [&](SegmentIndex a, SegmentIndex b) {
    return segments.at(a)->last_touched < segments.at(b)->last_touched;
  });
  return unused;
}

bool CachingEngine::IsWhollyFree(SegmentIndex segment) const { return ledger().heap().IsWhollyFree(segment); }

bool CachingEngine::IsIdle(SegmentIndex segment) const { return ledger().IsIdle(segment); }

Result<BlockView> CachingEngine::Find(Address address) const { return ledger().Find(address); }

Part CachingEngine::PartOf(Address address) const {
  const Block* const block = ledger().heap().Find(address);
  return block == nullptr || block->state != BlockState::kLive ? kCommonPart : block->part;
}

ReservedVector<StreamKey> CachingEngine::StreamsInUse() const {
  std::set<StreamKey> streams;
  for (const auto& [index, segment] : ledger().heap().segments()) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (!IsFreeMemory(*block) || block->part != kCommonPart) continue;
      for (const Use& use : block->uses) streams.insert(use.stream);
    }
  }
  return {streams.begin(), streams.end()};
}

Counters CachingEngine::counters() const { return ledger().counters(); }

void CachingEngine::ResetPeaks() { ledger().ResetPeaks(); }

std::vector<BlockView> CachingEngine::Snapshot() const { return ledger().Snapshot(); }

void CachingEngine::CheckInvariants() const { CheckLedger(ledger_); }

}  // namespace commpool::internal::engine
