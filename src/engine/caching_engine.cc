#include "src/engine/caching_engine.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "src/base/check.h"
#include "src/engine/invariants.h"

namespace commpool::internal::engine {

namespace {

// Segments that stand free are cut until the free memory of partly used ones is this part of the most that was ever
// asked for at once. Found by replaying traces (README.md).
constexpr uint64_t kHoleShare = 32;

// What may be left over in any case: a segment is cut for whatever request it could have been made for.
uint64_t LeastLeft(const EngineOptions& options) {
  return std::max({*SegmentBytes(2 * kSmallBytes, options.granularity, 0), options.segment_bytes, options.granularity});
}

bool CutsSparingly(Reuse reuse, Part part) { return reuse == Reuse::kSameStream && part == kCommonPart; }

}  // namespace

CachingEngine::CachingEngine(const EngineOptions& options) : options_(options), ledger_(options) {
  CheckOptions(options);
  cuts_ = {LeastLeft(options), kHoleShare, nullptr};
  SetCutting(Cutting::kSparingly);
}

void CachingEngine::SetCutting(Cutting cutting) {
  cuts_sparingly_ = cutting == Cutting::kSparingly && options_.choice == Choice::kPartlyUsedFirst;
}

std::optional<Served> CachingEngine::Serve(const Request& request) {
  if (request.reuse == Reuse::kAnyStream && request.choice == Choice::kPartlyUsedFirst) {
    Request own = request;
    own.reuse = Reuse::kSameStream;
    if (std::optional<Served> served = ledger().Serve(own)) return served;
  }
  return ledger().Serve(request);
}

Result<Outcome> CachingEngine::Allocate(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  Request request{bytes, sizes->block_bytes, stream, reuse, sizes->space, part, ChoiceFor(sizes->space)};
  if (CutsSparingly(reuse, part)) request.cuts = LimitsFor(sizes->space);
  std::optional<Served> served = Serve(request);
  if (!served) {
    ledger().Unify(stream, part);
    served = Serve(request);
  }
  const bool spares_growth = reuse == Reuse::kAnyStream || part != kCommonPart;
  if (!served && sizes->space == Space::kSmall && (spares_growth || small_blocks_ == SmallBlocks::kWhereTheyFit)) {
    request.space = Space::kLarge;
    served = ledger().Serve(request);
  }
  if (!served) return Outcome(Grow{sizes->segment_bytes, sizes->space, part});
  return Outcome(std::move(*served));
}

SegmentRange CachingEngine::AllocateAtOnce(uint64_t bytes, StreamKey stream) {
  const std::optional<uint64_t> block_bytes = BlockBytes(bytes, options_.alignment, options_.rounding);
  if (!block_bytes || bytes == 0) return {};
  Request request;
  request.requested = bytes;
  request.block_bytes = *block_bytes;
  request.stream = stream;
  request.space = options_.spaces == Spaces::kApart && *block_bytes <= kSmallBytes ? Space::kSmall : Space::kLarge;
  request.choice = ChoiceFor(request.space);
  request.cuts = LimitsFor(request.space);
  return ledger().ServeAtOnce(request);
}

Result<Grow> CachingEngine::GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  ledger().Wake();
  Fit fit{sizes->block_bytes, stream, reuse, sizes->space, part};
  if (CutsSparingly(reuse, part)) fit.cuts = LimitsFor(sizes->space);
  if (ledger().CanServe(fit)) return Grow{};
  ledger().Unify(stream, part);
  if (ledger().CanServe(fit)) return Grow{};
  if (part != kCommonPart || small_blocks_ == SmallBlocks::kWhereTheyFit) fit.space = Space::kLarge;
  return ledger().CanServe(fit) ? Grow{} : Grow{sizes->segment_bytes, sizes->space, part};
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
