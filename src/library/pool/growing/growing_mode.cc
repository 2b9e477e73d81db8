// GrowingMode: frees, space, sleep, captures and registration of fixed and expandable pools. allocation.cc has the way
// of a request.
#include "src/library/pool/growing/growing_mode.h"

#include <algorithm>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/pool/segments/sleep.h"
#include "src/library/pool/settings/settings.h"

namespace commpool::internal {

// Runs after every free that reaches the pool, without a lock. A free into a cache does not come here.
void GrowingMode::AfterFree() {
  if (basis_.device->health().broken()) return;  // the memory goes with the process
  // A destroyed pool gives back each segment whose last block was freed. The device may wait for what this thread does
  // next, so it waits for no work.
  if (basis_.life.destroyed()) {
    if (captures_.any_known() || blocks_.Ask(&engine::Engine::MayShrink)) ReleaseUnused(Wait::kNo);
  } else if (has_threshold_) {
    KeepToThreshold();
  }
}

// Called by frees and by slow allocations, so it never waits for a stream.
void GrowingMode::KeepToThreshold() {
  const uint64_t threshold = basis_.configuration.release_threshold_bytes;
  if (!has_threshold_ || blocks_.reserved_bytes() <= threshold) return;
  // A capture forbids questions about streams. A pool that sleeps holds nothing that could go.
  if (basis_.device->capturing() || basis_.life.asleep()) return;
  OrLogged(grower_->Release(threshold, Wait::kNo));
}

// No news where the context is lost, or the driver has shut down: every later call returns that error.
uint64_t GrowingMode::OrLogged(const Result<uint64_t>& released) const {
  if (!released.ok() && !basis_.device->health().broken())
    Log(LogLevel::kWarning, basis_.Named(released.status()).message());
  return released.ok() ? *released : 0;
}

// Grows first with what the device has. It asks the other pools and the process's other allocators after that.
Status GrowingMode::Reserve(uint64_t bytes) {
  const nvtx::Range range = basis_.Shown("reserve");
  COMMPOOL_TRY(basis_.CheckOpen());
  if (bytes == 0) return InvalidArgument(basis_.title, ": reserve of 0 bytes");
  COMMPOOL_TRY(segments_.room.CheckPossible(bytes));
  blocks_.TakeBack(basis_.runtime.caches.Drain(basis_.handle));
  // Free memory that could serve a block of the device's legacy stream counts as present.
  const StreamKey stream = KeyOfStream(nullptr, basis_.device->device());
  Status status = grower_->Grow(bytes, stream, Effort::kReserve);
  // Freed memory of streams that may be gone is free after a wait for the device, as it is for a request.
  if (status.code() == StatusCode::kOutOfMemory && !basis_.device->capturing() &&
      blocks_.Ask(&engine::Engine::AnyClosedLacksFenceOf, MayHaveDied)) {
    const Status waited = blocks_.WaitForDevice();
    if (basis_.device->health().broken()) return waited;
    if (waited.ok()) status = grower_->Grow(bytes, stream, Effort::kReserve);  // else others may still give
  }
  // Where the limit alone forbids it, memory of others does not help.
  if (status.code() != StatusCode::kOutOfMemory || !segments_.room.FitsEmptyPlacement(bytes)) return status;
  basis_.ReleaseOtherPools();
  basis_.runtime.holders.Release(basis_.device->device(), bytes);
  return grower_->Grow(bytes, stream, Effort::kPressure);
}

// Frees take effect by themselves here. So it only gives back what exceeds the threshold, or the device's headroom
// lacks.
Result<uint64_t> GrowingMode::Reclaim() {
  const nvtx::Range range = basis_.Shown("reclaim");
  COMMPOOL_TRY(basis_.CheckAwake());
  const uint64_t before = blocks_.reserved_bytes();
  blocks_.PollFences();
  KeepToThreshold();
  if (const uint64_t lacking = segments_.room.LackingHeadroom(); lacking != 0 && !basis_.device->capturing()) {
    const uint64_t reserved = blocks_.reserved_bytes();
    OrLogged(grower_->Release(reserved - std::min(reserved, lacking), Wait::kNo));
  }
  return before - std::min(before, blocks_.reserved_bytes());
}

// Waits a moment for graphs that the program has just destroyed: the driver reports their end a little later.
Result<uint64_t> GrowingMode::Trim(uint64_t keep_bytes) {
  COMMPOOL_TRY(basis_.CheckAwake());
  const uint64_t reserved = blocks_.reserved_bytes();
  keep_bytes = std::min(keep_bytes, reserved - std::min(reserved, segments_.room.LackingHeadroom()));
  // Only where there is something left to release: the wait costs up to a tenth of a second.
  const size_t graphs = blocks_.reserved_bytes() > keep_bytes ? captures_.AwaitEndedGraphs() : 0;
  Result<uint64_t> released = TrimNow(keep_bytes, Wait::kYes);
  if (graphs > 0 && blocks_.reserved_bytes() > keep_bytes && LogEnabled(LogLevel::kInfo)) {
    Log(LogLevel::kInfo, basis_.title + ": trim left " + FormatBytes(blocks_.reserved_bytes()) + ": graphs " +
                             "that captured with the pool live, and hold what they were served");
  }
  return released;
}

// Memory of graphs that are gone and blocks in caches are free as well, so they come back first.
Result<uint64_t> GrowingMode::TrimNow(uint64_t keep_bytes, Wait wait) {
  blocks_.ReleaseParts(captures_.TakeGone());
  blocks_.TakeBack(basis_.runtime.caches.Drain(basis_.handle));
  if (wait == Wait::kNo) stranded_.Look();
  return grower_->Release(keep_bytes, wait);
}

// Another pool needs memory, or this pool has no handle any more. A failure is logged only: nobody asked this pool.
uint64_t GrowingMode::ReleaseUnused(Wait wait) {
  DeviceState& device = *basis_.device;
  if (device.health().broken()) return 0;
  const uint64_t before = blocks_.reserved_bytes();
  Result<uint64_t> released = uint64_t{0};
  // An attempt: a host without memory is a failure as any other here.
  if (!device.capturing() && !basis_.life.asleep()) released = TrimNow(0, wait);
  // No program can ask a destroyed pool again. So a later call of another pool retries after a failure, once streams
  // are done, and after a capture (even one on another device, because fences may have to be recorded there).
  const bool again = device.captures().any() || !released.ok() || blocks_.Ask(&engine::Engine::AnyMayBeUsed);
  if (basis_.life.destroyed() && again) device.captures().Postpone();
  if (released.ok()) return *released;
  OrLogged(released);
  // What went in spite of the failure.
  return before - std::min(before, blocks_.reserved_bytes());
}

// cudaFree waits for the device, ncclMemFree is NCCL's, and a user's function is anybody's.
uint64_t GrowingMode::ReleaseIdle(DeviceWork work) {
  const Backing& backing = *segments_.backing;
  const bool at_once = backing.row().movement == Movement::kInPages;  // cuMemUnmap waits for nobody
  const bool waits = backing.IsOfCudaMalloc() && backing.row().maker == Maker::kLibrary;
  if (backing.placement().kind != Placement::Kind::kDevice) return 0;
  if (!at_once && (!waits || work == DeviceWork::kMayWork)) return 0;
  if (basis_.device->health().broken() || basis_.device->captures().any() || basis_.life.asleep()) return 0;
  blocks_.ReleaseParts(captures_.TakeGone());
  blocks_.TakeBack(basis_.runtime.caches.Drain(basis_.handle));
  return OrLogged(grower_->ReleaseAtOnce());
}

// Quiesce, deregister, release: the order of rule 5. A close that is refused, or that meets a busy device, leaves the
// pool open; one that failed later may be repeated. Live blocks are no reason to refuse: their segments stay until the
// blocks are freed. But those of a pool that sleeps nothing can bring back.
Status GrowingMode::Close() {
  MutexLock collective(basis_.collective);
  COMMPOOL_TRY(basis_.Named(segments_.CheckMayUnmap()));
  COMMPOOL_TRY(basis_.Named(basis_.device->CheckNotCapturing()));
  const bool asleep = basis_.life.asleep();
  const uint64_t live = asleep ? blocks_.Ask(&engine::Engine::counters).allocated_blocks.current : 0;
  if (live > 0) {
    Log(LogLevel::kWarning, basis_.title + " closes asleep with " + Counted(live, "live block") +
                                ", whose contents are lost: wake() comes before close()");
  }
  const bool broken = basis_.device->health().broken();
  const auto await = [&] {
    // The caches serve without a look at the pool's state.
    blocks_.TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kNever));
    return broken ? Status() : blocks_.WaitForDevice();
  };
  const Status begun = basis_.life.BeginClose(await);
  if (!begun.ok()) blocks_.LetCachesReopen();
  COMMPOOL_TRY(begun);
  if (broken) return basis_.device->health().first_error();
  COMMPOOL_TRY(segments_.registrations.RemoveAll());
  Status status = Trim(0).status();
  if (status.ok()) basis_.life.EndClose();
  return status;
}

// Alone: there are no ranks to agree with.
Status GrowingMode::Sleep(const SleepRequest& request, OtherPoolsOfCall others) {
  COMMPOOL_TRY(Sleeping::CheckMaySleep(basis_, segments_, request));
  return Sleeping(*this, Alone(basis_, "sleep")).FallAsleep(request, others);
}

Status GrowingMode::Wake(const SleepRequest& request, OtherPoolsOfCall others) {
  COMMPOOL_TRY(Sleeping::CheckMayWake(basis_, request));
  return Sleeping(*this, Alone(basis_, "wake")).WakeUp(request, others);
}

// Runs once, on the thread that destroyed the pool. Later frees release the rest (AfterFree).
void GrowingMode::AfterDestroy() {
  blocks_.TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kNever));
  // A graph that the program destroyed just before the pool still counts for a moment.
  if (blocks_.reserved_bytes() > 0) captures_.AwaitEndedGraphs();
  AfterFree();
  // No program can end these registrations any more, nor may the library (rule 1).
  if (segments_.registrations.registrations() == 0) return;
  Log(LogLevel::kWarning, basis_.title + " was destroyed while registered: " + FormatBytes(blocks_.reserved_bytes()) +
                              " stay mapped until the process ends");
}

// The message names COMMPOOL_CONF where it made the pool expandable.
Status GrowingMode::CheckRegistrable(const char* who) const {
  if (!MovesPages()) return Status();
  const std::string why =
      std::string(" is expandable: its pages move, and what ") + who + " has registered may not. Make a fixed pool";
  return WithSources(NotSupported(basis_.title, why), basis_.configuration.sources);
}

// Holds `growth` to the end, so that no segment comes while the list of them is registered: such a one would be missed.
Status GrowingMode::RegisterWith(ncclComm_t communicator) {
  const nvtx::Range range = basis_.Shown("register_with");
  COMMPOOL_TRY(CheckRegistrable("NCCL"));
  MutexLock collective(basis_.collective);
  COMMPOOL_TRY(basis_.CheckOpen());
  COMMPOOL_TRY(basis_.Named(segments_.backing->CanRegisterLocal()));
  // Asks NCCL for the communicator's device, which must be the pool's.
  Communicator described = COMMPOOL_TRY(DescribeCommunicator(basis_.driver, communicator, basis_.deadline_ms()));
  if (described.device != basis_.device->device()) {
    return InvalidArgument(basis_.title, " cannot be registered with a communicator of device ", described.device);
  }
  COMMPOOL_TRY(basis_.Named(segments_.registrations.CheckNoneEnding(communicator)));
  MutexLock growth(basis_.growth());
  return segments_.registrations.Add(described, segments_.book.List());
}

// The program calls it on the thread that uses its communicators, which no allocation can know (rule 1).
Result<uint64_t> GrowingMode::RegisterPending() {
  const nvtx::Range range = basis_.Shown("register_pending");
  MutexLock collective(basis_.collective);
  COMMPOOL_TRY(basis_.CheckOpen());
  const ContextGuard current = basis_.MakeCurrent();
  std::vector<SegmentToRegister> segments;
  const RegistrarBook::Claim claim = ClaimSegments(&segments);
  return segments_.registrations.RegisterPending(segments);
}

// Quiesces first (rule 5). The memory stays.
Status GrowingMode::Deregister(ncclComm_t communicator) {
  const nvtx::Range range = basis_.Shown("deregister");
  MutexLock collective(basis_.collective);
  // Also after an abandonment: then nothing is left to end.
  const RegistrationSet& known = segments_.registrations;
  if (!known.Has(communicator) && !known.IsRegisteredWith(communicator)) return Status();
  COMMPOOL_TRY(basis_.Named(segments_.CheckMayUnmap()));
  COMMPOOL_TRY(basis_.device->Quiesce(basis_.deadline_ms()));
  return segments_.registrations.Remove(communicator);
}

// As RegisterWith, for a library beside NCCL.
Status GrowingMode::AddRegistrar(const RegistrarRequest& request) {
  const std::optional<Registrar> registrar = COMMPOOL_TRY(request);
  if (!registrar) return InvalidArgument(basis_.title, " has no other ranks, so its registrar is not null");
  COMMPOOL_TRY(CheckRegistrable("a registrar"));
  MutexLock collective(basis_.collective);
  COMMPOOL_TRY(basis_.CheckOpen());
  const ContextGuard current = basis_.MakeCurrent();
  std::vector<SegmentToRegister> segments;
  const RegistrarBook::Claim claim = ClaimSegments(&segments);
  return basis_.Named(segments_.registrations.registrars().Add(*registrar, segments_.Traits(), segments));
}

// A registrar may take its time, and allocations grow the pool meanwhile: so the growth lock is free again. What they
// make waits for register_pending(). The collective lock, which stays, keeps out all else that registers or unmaps.
RegistrarBook::Claim GrowingMode::ClaimSegments(std::vector<SegmentToRegister>* segments) {
  MutexLock growth(basis_.growth());
  *segments = segments_.book.List();
  return {segments_.registrations.registrars(), *segments};
}

Status GrowingMode::RemoveRegistrar(const std::string& name) {
  MutexLock collective(basis_.collective);
  if (!segments_.registrations.registrars().Has(name)) return NotFound(basis_.title, " has no registrar named ", name);
  COMMPOOL_TRY(basis_.device->Quiesce(basis_.deadline_ms()));
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.Named(segments_.registrations.registrars().Remove(name));
}

}  // namespace commpool::internal
