#include "src/pool/sleep.h"

#include <string>

#include "src/backing/backing_table.h"
#include "src/base/host_patience.h"

namespace commpool::internal {

namespace {

void Tell(const PoolParts& parts, void (MemoryObserver::*event)(const engine::SegmentRange&)) {
  for (const SegmentToRegister& segment : Insist([&] { return parts.segments.List(); })) {
    parts.basis.runtime.observers.Tell(event, engine::SegmentRange{segment.address, segment.bytes});
  }
}

}  // namespace

Status CheckMaySleep(PoolParts& parts, const SleepRequest& request) {
  Status status = parts.CheckOpen();
  if (!status.ok()) return status;
  if (parts.segments.backing().pages() == nullptr) {
    const auto sleeps = [](const BackingRow& row) { return row.movement == Movement::kInPages; };
    status = Status(StatusCode::kNotSupported, std::string("memory of the ") + parts.segments.backing().name() +
                                                   " backing cannot leave its addresses and come back: that of " +
                                                   NamesOfBackings(sleeps) + " can");
  }
  if (status.ok()) status = parts.basis.device->CheckNotCapturing();
  if (status.ok() && request.graphs == LiveGraphs::kRefused) {
    status = parts.captures.CheckNoneLive().under("unless graphs = NO_COLLECTIVES is promised");
  }
  return parts.basis.Named(status.under("sleep"));
}

Status CheckMayWake(const PoolParts& parts) {
  Status status = parts.basis.device->health().first_error();
  if (!status.ok()) return status;
  if (!parts.life.asleep()) {
    status = parts.life.open() ? Status(StatusCode::kFailedPrecondition, "it is not asleep") : parts.life.CheckOpen();
  }
  if (status.ok()) status = parts.basis.device->CheckNotCapturing();
  return parts.basis.Named(status.under("wake"));
}

void BeginSleep(PoolParts& parts) {
  parts.life.BeginSleep();
  parts.blocks.CloseCaches(ThreadCaches::Reopen::kNever);
  Tell(parts, &MemoryObserver::SegmentSleeps);
}

void EndSleep(PoolParts& parts) {
  Tell(parts, &MemoryObserver::SegmentAwake);
  parts.life.EndSleep();
  // A pool that ends meanwhile keeps its caches closed.
  if (parts.life.open()) parts.basis.runtime.caches.LetReopen(parts.basis.handle);
}

Status QuiesceAndKeep(PoolParts& parts, const SleepRequest& request) {
  Status status = parts.blocks.WaitForDevice();
  if (status.ok()) status = parts.segments.AwaitPeers();
  if (status.ok() && request.keep == Keep::kHost) status = parts.kept.Keep(parts.basis, parts.blocks);
  return status;
}

Status DeregisterSegments(PoolParts& parts) {
  Status first;
  for (const SegmentToRegister& segment : Insist([&] { return parts.segments.List(); })) {
    Status status = parts.registrations.DeregisterSegment(segment.index);
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace commpool::internal
