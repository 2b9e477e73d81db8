#include "src/engine/caching_engine.h"

#include <optional>
#include <utility>

#include "src/base/check.h"
#include "src/engine/invariants.h"

namespace commpool::engine {

CachingEngine::CachingEngine(const EngineOptions& options)
    : options_(options), ledger_(options.alignment, MergePolicy::kSameUses) {
  CheckOptions(options);
}

Result<Outcome> CachingEngine::Allocate(uint64_t bytes, StreamKey stream, Reuse reuse) {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  std::optional<Served> served = ledger_.Serve({bytes, sizes->block_bytes, stream, reuse});
  if (!served) return Outcome(Grow{sizes->segment_bytes});
  return Outcome(std::move(*served));
}

Result<uint64_t> CachingEngine::GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse) const {
  Result<RequestSizes> sizes = SizesOf(bytes, options_);
  if (!sizes.ok()) return sizes.status();
  return ledger_.CanServe(sizes->block_bytes, stream, reuse) ? 0 : sizes->segment_bytes;
}

Result<Freed> CachingEngine::Free(Address address) {
  Result<Closed> closed = ledger_.Close(address, Disposal::kAwaitFences);
  if (!closed.ok()) return closed.status();
  return std::move(closed->freed);
}

void CachingEngine::AttachFence(Address address, StreamKey stream, Fence fence) {
  COMMPOOL_CHECK(ledger_.AttachFence(address, stream, fence), "a fence is attached that no free asked for");
}

Status CachingEngine::RecordStream(Address address, StreamKey stream) { return ledger_.RecordStream(address, stream); }

void CachingEngine::FencePassed(Fence fence) { ledger_.FencePassed(fence); }

void CachingEngine::DeviceIdle(Moment moment) { ledger_.DeviceIdle(moment); }

void CachingEngine::ForgetStream(StreamKey stream) { ledger_.ForgetStream(stream); }

std::vector<Fence> CachingEngine::PendingFences() const { return ledger_.PendingFences(); }

SegmentIndex CachingEngine::AddSegment(const SegmentRange& range) { return ledger_.AddSegment(range); }

SegmentRange CachingEngine::RemoveSegment(SegmentIndex segment) { return ledger_.RemoveSegment(segment); }

std::vector<SegmentIndex> CachingEngine::WhollyFreeSegments() const { return ledger_.heap().WhollyFreeSegments(); }

bool CachingEngine::IsWhollyFree(SegmentIndex segment) const { return ledger_.heap().IsWhollyFree(segment); }

bool CachingEngine::IsIdle(SegmentIndex segment) const { return ledger_.IsIdle(segment); }

Result<BlockView> CachingEngine::Find(Address address) const { return ledger_.Find(address); }

Counters CachingEngine::counters() const { return ledger_.counters(); }

void CachingEngine::ResetPeaks() { ledger_.ResetPeaks(); }

std::vector<BlockView> CachingEngine::Snapshot() const { return ledger_.Snapshot(); }

void CachingEngine::CheckInvariants() const { CheckLedger(ledger_); }

}  // namespace commpool::engine
