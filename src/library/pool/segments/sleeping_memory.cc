// SleepingMemory: a copy of one piece runs while the next one is made.
#include "src/library/pool/segments/sleeping_memory.h"

#include "src/library/backing/territory.h"
#include "src/library/base/bytes.h"
#include "src/library/base/try.h"

namespace commpool::internal {

namespace {

// Copying one piece takes 5 ms; meanwhile the pages of the next are made and mapped.
constexpr uint64_t kPieceBytes = 256 * kMiB;

}  // namespace

// All or none: where one segment cannot be unmapped the others are mapped again.
Status SleepingMemory::UnmapAll() {
  for (Segment* segment : book_.Pointers()) {
    Status status = segment->territory()->UnmapAll();
    if (status.ok()) continue;
    // Its failure is told by the caller's own attempt to map again.
    static_cast<void>(MapAll());
    return status;
  }
  return Status();
}

// The physical memory was kept, so the contents are there.
Status SleepingMemory::MapAll() {
  for (Segment* segment : book_.Pointers()) COMMPOOL_TRY(segment->territory()->MapAll());
  return Status();
}

// The bytes count as asleep from now on, and no longer in the account: other pools may use the room.
void SleepingMemory::ReleaseUnmapped() {
  uint64_t asleep = 0;
  for (Segment* segment : book_.Pointers()) {
    segment->territory()->ReleaseUnmapped();
    asleep += segment->territory()->missing_bytes();
  }
  room_.Sleep(asleep);
}

// So the copy of one piece runs while the driver maps the next one.
Status SleepingMemory::WakeSegment(Segment& segment, Progress& progress) {
  // Without anything to copy it is all one piece, because each piece costs driver calls.
  const uint64_t at_least = kept_.bytes() == 0 ? segment.bytes() : kPieceBytes;
  const CUdeviceptr end = segment.address() + segment.bytes();
  for (CUdeviceptr from = segment.address(); from != end;) {
    const CUdeviceptr next = COMMPOOL_TRY(segment.territory()->WakeFrom(from, at_least, backing_));
    COMMPOOL_TRY(kept_.Start({from, next - from}, HostCopies::Direction::kToDevice));
    progress.Advance(next - from);
    from = next;
  }
  return Status();
}

Status SleepingMemory::WakeSegments(Progress& progress) {
  for (Segment* segment : book_.Pointers()) COMMPOOL_TRY(WakeSegment(*segment, progress));
  return Status();
}

// After a failure all is as before: no memory, no room taken, and the copies on the host are whole.
Status SleepingMemory::Wake() {
  const uint64_t asleep = room_.asleep_bytes();
  Progress progress(basis_.title + ": waking", asleep);
  // Room first: other pools may have taken it during the sleep.
  COMMPOOL_TRY(room_.TakeToWake());
  const ContextGuard current = basis_.MakeCurrent();
  kept_.DropFreed(blocks_);
  const Status status = kept_.AwaitRestoring(WakeSegments(progress));
  if (status.ok()) {
    room_.Wake();
    return status;
  }
  // Only after all copies have ended (AwaitRestoring): a copy into unmapped memory would lose the context.
  for (Segment* segment : book_.Pointers()) static_cast<void>(segment->territory()->UnmapAll());
  ReleaseUnmapped();
  return Status(status.code(), "waking " + FormatBytes(asleep) + ": " + status.message());
}

Status SleepingMemory::Retain(bool retain) {
  MutexLock growth(basis_.growth());
  return basis_.Named(kept_.Retain(retain).under("retain"));
}

// The first lock waits for a sleep or a wake that is under way, the second for a thread that ends the pool (Drop).
Result<const std::byte*> SleepingMemory::Find(CUdeviceptr address, uint64_t bytes) {
  MutexLock collective(basis_.collective);
  MutexLock growth(basis_.growth());
  Result<const std::byte*> kept = kept_.Find(blocks_, {address, bytes}, basis_.life.asleep());
  if (kept.ok()) return kept;
  return basis_.Named(kept.status().under("kept"));
}

// A sleep under way keeps its blocks first.
void SleepingMemory::Drop() {
  MutexLock growth(basis_.growth());
  kept_.Drop();
}

}  // namespace commpool::internal
