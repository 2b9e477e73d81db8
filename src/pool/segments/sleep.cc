#include "src/pool/segments/sleep.h"

#include <string>

#include "src/backing/backing_table.h"
#include "src/base/host_patience.h"

namespace commpool::internal {

namespace {

void Tell(const PoolBasis& basis, const SegmentStore& segments,
          void (MemoryObserver::*event)(const engine::SegmentRange&)) {
  for (const SegmentToRegister& segment : Insist([&] { return segments.List(); })) {
    basis.runtime.observers.Tell(event, engine::SegmentRange{segment.address, segment.bytes});
  }
}

}  // namespace

Status CheckMaySleep(const PoolBasis& basis, SegmentStore& segments, const SleepRequest& request) {
  Status status = basis.CheckOpen();
  if (!status.ok()) return status;
  if (segments.backing().row().movement != Movement::kInPages) {
    const auto sleeps = [](const BackingRow& row) { return row.movement == Movement::kInPages; };
    status = Status(StatusCode::kNotSupported, std::string("memory of the ") + segments.backing().name() +
                                                   " backing cannot leave its addresses and come back: that of " +
                                                   NamesOfBackings(sleeps) + " can");
  }
  if (status.ok()) status = basis.device->CheckNotCapturing();
  if (status.ok() && request.graphs == LiveGraphs::kRefused) {
    status =
        segments.CheckMayUnmap(SegmentStore::Unmapped::kBlocksToo).under("unless graphs = NO_COLLECTIVES is promised");
  }
  return basis.Named(status.under("sleep"));
}

Status CheckMayWake(const PoolBasis& basis) {
  Status status = basis.device->health().first_error();
  if (!status.ok()) return status;
  if (!basis.life.asleep()) {
    status = basis.life.open() ? Status(StatusCode::kFailedPrecondition, "it is not asleep") : basis.life.CheckOpen();
  }
  if (status.ok()) status = basis.device->CheckNotCapturing();
  return basis.Named(status.under("wake"));
}

void BeginSleep(PoolBasis& basis, BlockStore& blocks, const SegmentStore& segments) {
  basis.life.BeginSleep();
  blocks.CloseCaches(ThreadCaches::Reopen::kNever);
  Tell(basis, segments, &MemoryObserver::SegmentSleeps);
}

void EndSleep(PoolBasis& basis, const SegmentStore& segments) {
  Tell(basis, segments, &MemoryObserver::SegmentAwake);
  basis.life.EndSleep();
  // A pool that ends meanwhile keeps its caches closed.
  if (basis.life.open()) basis.runtime.caches.LetReopen(basis.handle);
}

Status QuiesceAndKeep(BlockStore& blocks, SegmentStore& segments, const SleepRequest& request) {
  Status status = blocks.WaitForDevice();
  if (status.ok()) status = segments.AwaitPeers();
  if (status.ok() && request.keep == Keep::kHost) status = segments.kept().Keep(blocks);
  return status;
}

}  // namespace commpool::internal
