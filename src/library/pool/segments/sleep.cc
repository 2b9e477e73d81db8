// How a pool falls asleep and wakes: the steps that its ranks agree on, and what each does with the segments.
#include "src/library/pool/segments/sleep.h"

#include <string>

#include "src/library/backing/backing_table.h"
#include "src/library/backing/territory.h"
#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/registered_range.h"

namespace commpool::internal {

namespace {

// Copying one piece takes 5 ms; meanwhile the pages of the next are made and mapped.
constexpr uint64_t kPieceBytes = 256 * kMiB;

// Captured collectives may use registrations that NCCL made by itself (its src/register/coll_reg.cc), also of the
// memory of a window; those end with the memory. Where NCCL makes none, live graphs are no reason to refuse.
Status CheckNothingUnseen(const SegmentStore& segments) {
  const Status settings = CheckNcclRegistersNothingUnseen();
  if (settings.ok() || !segments.registrations.empty()) return settings;
  const Status unused = segments.CheckMayUnmap(Unmapped::kBlocksToo);
  if (unused.ok()) return unused;
  return Failure(unused.code(), unused.message(), ". If they hold no collectives: graphs = NO_COLLECTIVES");
}

}  // namespace

// Changes nothing. A symmetric pool's answer goes to the other ranks.
Status Sleeping::CheckMaySleep(const PoolBasis& basis, const SegmentStore& segments, const SleepRequest& request) {
  COMMPOOL_TRY(basis.CheckOpen());
  Status status = request.readiness;
  if (status.ok() && segments.backing->row().movement != Movement::kInPages) {
    const auto sleeps = [](const BackingRow& row) { return row.movement == Movement::kInPages; };
    status = NotSupported("memory of the ", segments.backing->name(), " backing (", segments.backing->Facts().what,
                          ") cannot leave its addresses and come back: that of ", NamesOfBackings(sleeps), " can");
  }
  if (status.ok()) status = basis.device->CheckNotCapturing();
  if (status.ok()) status = segments.exporter.CheckNoneShared();
  if (status.ok()) status = basis.runtime.shares.CheckMaySleep(basis.handle);
  if (status.ok() && DependOnPlaces(request.graphs)) {
    status = CheckNothingUnseen(segments);
    if (!status.ok()) {
      status = Failure(status.code(), status.message(), "; if none is replayed again: graphs = DISCARDED");
    }
  }
  return basis.Named(status.under("sleep"));
}

// Whether the memory is to be had shows only when it is made.
Status Sleeping::CheckMayWake(const PoolBasis& basis, const SleepRequest& request) {
  COMMPOOL_TRY(basis.device->health().first_error());
  Status status = request.readiness;
  if (status.ok() && basis.life.open()) status = FailedPrecondition("it is not asleep");
  if (status.ok() && !basis.life.asleep()) status = basis.life.CheckOpen();
  if (status.ok()) status = basis.device->CheckNotCapturing();
  return basis.Named(status.under("wake"));
}

// Steps 2 to 5 of *Sleep* in src/library/pool/README.md. Memory is released last, without an agreement: nothing can be
// undone after it.
Status Sleeping::FallAsleep(const SleepRequest& request, OtherPoolsOfCall others) {
  basis_.life.BeginSleep();
  // After the state has changed, so that no thread makes a cache of the pool meanwhile; ServeAgain lets them reopen.
  blocks_.TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kNever));
  const auto unmap = [&] {
    MutexLock growth(basis_.growth());
    return UnmapAll();
  };
  const auto steps = [&]() -> Status {
    COMMPOOL_TRY(run_({"getting ready to sleep", [&] { return QuiesceAndKeep(request); }}));
    COMMPOOL_TRY(run_({"deregistering", [&] { return Deregister(); }}));
    COMMPOOL_TRY(run_({"unmapping", unmap}));
    return others();
  };
  if (const Status status = steps(); !status.ok()) return StayAwake(status);
  MutexLock growth(basis_.growth());
  ReleaseUnmapped();
  return Status();
}

Status Sleeping::AwaitAndKeep(const SleepRequest& request) {
  const Patience patience = basis_.own_deadline_ms();
  COMMPOOL_TRY(blocks_.WaitForDevice(patience));
  const std::vector<int> peers = segments_.peers.Devices();
  COMMPOOL_TRY(basis_.runtime.devices.Quiesce({peers.begin(), peers.end()}, patience));
  // Another thread may have destroyed the pool meanwhile. If it does so from now on it waits for the growth lock, and
  // drops what is kept.
  if (!basis_.life.asleep()) return basis_.life.CheckOpen();
  COMMPOOL_TRY(segments_.exporter.CheckNoneShared());  // again: from now on nothing is shared, for the pool is asleep
  return request.keep == Keep::kHost ? segments_.kept.Keep(request.copies) : Status();
}

// Waits for importers, for this device and for its peers, and then copies.
Status Sleeping::QuiesceAndKeep(const SleepRequest& request) {
  COMMPOOL_TRY(basis_.runtime.shares.TellAsleep(basis_.handle));  // its thread may wait for the growth lock meanwhile
  MutexLock growth(basis_.growth());
  Tell(true);  // of all segments: a thread that grew the pool has ended that
  Status status = AwaitAndKeep(request);
  // Retained copies too: which of their blocks were freed is known only until then.
  if (request.keep != Keep::kHost || !status.ok()) segments_.kept.DropAll();
  return status;
}

// Goes the steps back that were done: nothing is lost, because no memory was released yet.
Status Sleeping::StayAwake(const Status& failure) {
  Status mapped;
  const auto map = [&] {
    MutexLock growth(basis_.growth());
    return mapped = MapAll();
  };
  Status again = run_({"mapping again", map});
  if (again.ok()) again = run_({"registering again", [&] { return Register(); }});
  if (const Status returned = CheckReturned(); again.ok() && !returned.ok()) {
    Log(LogLevel::kWarning, basis_.title + " stays awake; " + returned.message());
  }
  // A pool without other ranks decides alone: what fails to register again is pending. With other ranks, all must
  // agree.
  const bool alone = !basis_.configuration.symmetric() || BreaksChannel(again);
  if (!again.ok() && !(alone && mapped.ok())) {
    return Failure(failure.code(), failure.message(), "; then ", again.message(), ": the pool is asleep, wake() it");
  }
  ServeAgain();
  return failure;
}

// In the order that PlanReturn has found, where it was asked for one.
Status Sleeping::Register() {
  const ContextGuard current = basis_.MakeCurrent();
  return segments_.registrations.RegisterAgain(segments_.book.List());
}

// NCCL chooses the places of windows by itself. After the planned order they mostly come back.
Status Sleeping::CheckReturned() const {
  const std::string moved = segments_.registrations.DescribeMoved();
  if (moved.empty()) return Status();
  return FailedPrecondition("NCCL placed ", moved,
                            ", elsewhere than before: graphs that captured collectives over them are stale "
                            "(wake with graphs = DISCARDED accepts that)");
}

Status Sleeping::Deregister() { return segments_.Deregister(segments_.book.Indexes()); }

// The error of a full device lists who holds what.
Status Sleeping::MakeMemory() {
  Status made = WakeMemory();
  if (made.code() == StatusCode::kOutOfMemory && !basis_.configuration.symmetric()) {
    const uint64_t bytes = segments_.room.asleep_bytes();
    const std::string budget = segments_.room.BudgetThatLacks(bytes);
    basis_.ReleaseOtherPools(budget);
    if (budget.empty()) basis_.runtime.holders.Release(basis_.device->device(), bytes);
    made = WakeMemory();
  }
  if (made.code() != StatusCode::kOutOfMemory) return made;
  return Failure(made.code(), made.message(), basis_.DescribeHolders());
}

// Two steps that ranks agree on: memory with the kept blocks in it, then registrations. Undone in the other order.
Status Sleeping::WakeUp(const SleepRequest& request, OtherPoolsOfCall others) {
  const auto release = [&](const Status&) { ReleaseAgain(); };
  COMMPOOL_TRY(run_({"making memory to wake", [&] { return MakeMemory(); }, release}));
  const auto register_and_prove = [&]() -> Status {
    COMMPOOL_TRY(Register());
    return DependOnPlaces(request.graphs) ? CheckReturned() : Status();
  };
  COMMPOOL_TRY(run_({"registering", register_and_prove, [&](const Status&) { SleepOn(); }}));
  const Status all = others();
  if (all.ok()) segments_.kept.SetRetain(request.retain);
  all.ok() ? ServeAgain() : SleepOn();
  return all;
}

// Where registrations cannot be ended the memory stays mapped, and the pool sleeps.
void Sleeping::SleepOn() {
  if (run_({"undoing the registration", [&] { return Deregister(); }}).ok()) ReleaseAgain();
}

// Where making the memory failed, Wake has released everything already: then some bytes still count as asleep.
void Sleeping::ReleaseAgain() {
  MutexLock growth(basis_.growth());
  if (segments_.room.asleep_bytes() == 0 && UnmapAll().ok()) ReleaseUnmapped();
}

// Copies go, or are watched, before the state changes: once the pool serves, an address may get a block with other
// contents.
void Sleeping::ServeAgain() {
  Tell(false);  // may fail: so before anything is let go
  {
    MutexLock growth(basis_.growth());
    segments_.kept.LetGo();
  }
  basis_.life.EndSleep();
  basis_.runtime.shares.TellAwake(basis_.handle);
  blocks_.LetCachesReopen();
}

void Sleeping::Tell(bool asleep) const {
  for (const SegmentToRegister& segment : segments_.book.List()) {
    basis_.runtime.observer.SegmentSleeps({segment.address, segment.bytes}, asleep);
  }
}

// All or none: where one segment cannot be unmapped the others are mapped again.
Status Sleeping::UnmapAll() {
  for (Segment* segment : segments_.book.Pointers()) {
    Status status = segment->territory()->UnmapAll();
    if (status.ok()) continue;
    // Its failure is told by the caller's own attempt to map again.
    static_cast<void>(MapAll());
    return status;
  }
  return Status();
}

// The physical memory was kept, so the contents are there.
Status Sleeping::MapAll() {
  for (Segment* segment : segments_.book.Pointers()) COMMPOOL_TRY(segment->territory()->MapAll());
  return Status();
}

// The bytes count as asleep from now on, and no longer in the account: other pools may use the room.
void Sleeping::ReleaseUnmapped() {
  uint64_t asleep = 0;
  for (Segment* segment : segments_.book.Pointers()) {
    segment->territory()->ReleaseUnmapped();
    asleep += segment->territory()->missing_bytes();
  }
  segments_.room.Sleep(asleep);
}

// So the copy of one piece runs while the driver maps the next one.
Status Sleeping::WakeSegments(Progress& progress) {
  // Without anything to copy a segment is all one piece, because each piece costs driver calls.
  const uint64_t at_least = segments_.kept.bytes() == 0 ? UINT64_MAX : kPieceBytes;
  for (Segment* segment : segments_.book.Pointers()) {
    const CUdeviceptr end = segment->address() + segment->bytes();
    for (CUdeviceptr from = segment->address(); from != end;) {
      const CUdeviceptr next = COMMPOOL_TRY(segment->territory()->WakeFrom(from, at_least, *segments_.backing));
      COMMPOOL_TRY(segments_.kept.Start({from, next - from}, HostCopies::Direction::kToDevice));
      progress.Advance(next - from);
      from = next;
    }
  }
  return Status();
}

// After a failure all is as before: no memory, no room taken, and the copies on the host are whole.
Status Sleeping::WakeMemory() {
  MutexLock growth(basis_.growth());
  const uint64_t asleep = segments_.room.asleep_bytes();
  Progress progress(basis_.title + ": waking", asleep);
  // Room first: other pools may have taken it during the sleep.
  COMMPOOL_TRY(segments_.room.TakeToWake());
  const ContextGuard current = basis_.MakeCurrent();
  segments_.kept.DropFreed();
  const Status status = segments_.kept.AwaitRestoring(WakeSegments(progress));
  if (status.ok()) {
    segments_.room.Wake();
    return status;
  }
  // Only after all copies have ended (AwaitRestoring): a copy into unmapped memory would lose the context.
  for (Segment* segment : segments_.book.Pointers()) static_cast<void>(segment->territory()->UnmapAll());
  ReleaseUnmapped();
  return Failure(status.code(), "waking ", FormatBytes(asleep), ": ", status.message());
}

}  // namespace commpool::internal
