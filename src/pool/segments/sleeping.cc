// The segments' part of sleep: their memory goes, and comes back at the same addresses.
#include "src/backing/territory.h"
#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/try.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

namespace {

// Copying one piece takes 5 ms; meanwhile the pages of the next are made and mapped.
constexpr uint64_t kPieceBytes = 256 * kMiB;

}  // namespace

Status SegmentStore::AwaitPeers() {
  for (const int peer : peers_) {
    COMMPOOL_TRY(basis_.device->CheckNotCapturing(peer));
    COMMPOOL_TRY(WaitForPeer(peer));
  }
  return Status();
}

Status SegmentStore::UnmapAll() {
  for (Segment* segment : Pointers()) {
    Status status = segment->territory()->UnmapAll();
    if (status.ok()) continue;
    static_cast<void>(MapAll());
    return status;
  }
  return Status();
}

Status SegmentStore::MapAll() {
  for (Segment* segment : Pointers()) COMMPOOL_TRY(segment->territory()->MapAll());
  return Status();
}

void SegmentStore::ReleaseUnmapped() {
  uint64_t asleep = 0;
  for (Segment* segment : Pointers()) {
    segment->territory()->ReleaseUnmapped();
    asleep += segment->territory()->missing_bytes();
  }
  asleep_bytes_.store(asleep, std::memory_order_relaxed);
  account_->Return(asleep);
}

Status SegmentStore::WakeSegment(Segment& segment, Progress& progress) {
  // Without anything to copy it is all one piece, because each piece costs driver calls.
  const uint64_t at_least = kept_.bytes() == 0 ? segment.bytes() : kPieceBytes;
  const CUdeviceptr end = segment.address() + segment.bytes();
  for (CUdeviceptr from = segment.address(); from != end;) {
    const CUdeviceptr next = COMMPOOL_TRY(segment.territory()->WakeFrom(from, at_least, *backing_));
    COMMPOOL_TRY(kept_.StartRestoring({from, next - from}));
    progress.Advance(next - from);
    from = next;
  }
  return Status();
}

Status SegmentStore::Wake() {
  const uint64_t asleep = asleep_bytes();
  Progress progress(basis_.title + ": waking", asleep);
  if (!account_->Take(asleep)) {
    return Status(StatusCode::kOutOfMemory, "waking " + FormatBytes(asleep) + " would exceed the limit of " +
                                                account_->place() + ", " + FormatBytes(account_->limit()));
  }
  const ContextGuard current = basis_.MakeCurrent();
  const Status status = kept_.AwaitRestoring(Attempt([&]() -> Status {
    growth_.AssertHeld();
    for (Segment* segment : Pointers()) COMMPOOL_TRY(WakeSegment(*segment, progress));
    return Status();
  }));
  if (status.ok()) {
    asleep_bytes_.store(0, std::memory_order_relaxed);
    return status;
  }
  for (Segment* segment : Pointers()) static_cast<void>(segment->territory()->UnmapAll());
  ReleaseUnmapped();
  return Status(status.code(), "waking " + FormatBytes(asleep) + ": " + status.message());
}

}  // namespace commpool::internal
