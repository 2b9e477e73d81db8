// Pool: passes each call on to the part or the mode that does it. It adds what no part knows by itself: how often to
// try, and what comes before and after a capture, a close and a destroy.
#include "src/library/pool/pool.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace commpool::internal {

// Nothing here can fail but for host memory: what can was made before.
Pool::Pool(PoolIngredients ingredients, const MakeMode& make_mode)
    : basis_(std::move(ingredients.basis)),
      captures_(*basis_),
      blocks_(*basis_, std::move(ingredients.engine)),
      segments_(*basis_, captures_, blocks_, std::move(ingredients.backing), std::move(ingredients.account)),
      mode_(make_mode({*basis_, captures_, blocks_, segments_})) {}

// The factory calls it, and nobody else has the pool yet.
std::shared_ptr<Pool> Pool::Make(PoolIngredients ingredients, const MakeMode& make_mode) {
  auto pool = std::make_shared<Pool>(std::move(ingredients), make_mode);
  // After construction: the object has no shared pointer to itself before.
  pool->basis_->owner = pool;
  return pool;
}

// A block may outlive its pool's handle: then it names no pool.
Result<commpool_block> Pool::FindBlock(CUdeviceptr address) const {
  Result<commpool_block> block = internal::FindBlock(*basis_, blocks_, address);
  if (block.ok() && basis_->life.destroyed()) block->pool = 0;
  return block;
}

// Counts a failed request once, however often it was tried. The pauses get twice as long, up to a second: other
// processes, and threads of this one, may release memory meanwhile, and nobody tells us. Only a lack of memory may pass
// by itself.
Result<CUdeviceptr> Pool::Allocate(uint64_t bytes, StreamKey stream) {
  Status open = basis_->CheckOpen();
  if (open.ok() && stream == kNoStream && basis_->own_reuse != engine::OwnReuse::kOncePassed) {
    open = InvalidArgument(basis_->title,
                           ": its blocks are reused in a stream's order, so each needs one. Pinned memory with "
                           "deferred frees takes COMMPOOL_NO_STREAM");
  }
  Result<CUdeviceptr> address = open.ok() ? mode_->Allocate(bytes, stream) : Result<CUdeviceptr>(open);
  if (address.ok()) [[likely]]
    return address;
  constexpr auto kLongestPause = std::chrono::milliseconds(1000);
  std::chrono::milliseconds pause(10);
  for (uint32_t attempt = 1; attempt != basis_->configuration.attempts; ++attempt) {
    if (address.status().code() != StatusCode::kOutOfMemory) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
    address = mode_->Allocate(bytes, stream);
  }
  if (!address.ok()) PoolEvents::Count(basis_->events.failed_allocations);
  return address;
}

// A stream of a capture stays alone: the other stream would be pulled into the capture.
Status Pool::AddOwnDefaultStream(CUdeviceptr address, CUstream handle, StreamKey stream) {
  const StreamKey own = KeyOfStream(handle, device());
  const bool has_own = segments_.backing->placement().kind == Placement::Kind::kDevice;
  if (stream == own || !has_own) return Status();
  const engine::Part part = COMMPOOL_TRY(captures_.PartOf(stream));
  if (part != engine::kCommonPart) return Status();
  if (IsPerThread(own) && COMMPOOL_TRY(basis_->Captures(own))) {
    return basis_->Named(
        FailedPrecondition("this thread's own default stream of the pool's device is being captured, so it cannot "
                           "wait for that of the device which is current: make the pool's device current"));
  }
  COMMPOOL_TRY(basis_->fences().MakeWaitForStream(own, stream));  // the block's waits were made for `stream`
  return blocks_.RecordStream(address, own);
}

// Of a stream without a promise only this call can tell whether its use belongs to a capture.
Status Pool::RecordStream(CUdeviceptr address, StreamKey stream) {
  if (captures_.any_open() && IsUnpromised(stream)) static_cast<void>(captures_.PartOf(stream));
  return blocks_.RecordStream(address, stream);
}

// ThreadCaches calls it, from any thread, without a lock.
void Pool::TakeBack(const engine::ReturnedBlocks& returned) {
  // Else only corrections of statistics came: nothing is free now that was not before.
  if (blocks_.TakeBack(returned)) mode_->AfterFree();
}

// Whether the block's use ends in the graph, only this moment shows: the capture may end before its announcement does.
// The moment comes before the question: a capture that runs at the answer ran at the moment too.
Status Pool::FreeBesideCaptures(CUdeviceptr address) {
  const engine::Part part = blocks_.Ask(&engine::Engine::PartOf, address);
  Status status = blocks_.Free(address);
  const engine::Moment moment = blocks_.Ask(&engine::Engine::Now);
  if (part != engine::kCommonPart && captures_.IsRunning(part)) captures_.NoteFree(part, moment);
  return status;
}

// The order matters: what can fail comes first, and other pools hear of the capture before caches of this pool end.
Status Pool::BeginCapture(CaptureHandle capture, CUstream stream, StreamKey key) {
  COMMPOOL_TRY(basis_->CheckOpen());
  const bool ordered = symmetric() && basis_->configuration.frees == engine::FreeOrder::kOrdered;
  if (ordered) {
    return NotSupported(
        basis_->title,
        " has ordered frees, which take effect at once: what a graph freed would serve others while the "
        "graph is replayed. Captures need deferred frees");
  }
  const ContextGuard current = basis_->MakeCurrent();
  const GraphCaptures::Origin origin{stream, key, {device(), PlaceOf(key)}};
  COMMPOOL_TRY(basis_->Named(captures_.Begin(capture, origin)));
  // From here on all pools of the process refuse to wait for these devices.
  basis_->device->captures().Begin(origin.devices);
  // A cache could serve the captured stream with a block that does not belong to the graph, and none serves while a
  // capture is open. The blocks go back, so that requests find their memory.
  blocks_.TakeBack(basis_->runtime.caches.Close(handle(), ThreadCaches::Reopen::kAtNextUse));
  basis_->runtime.observer.CaptureAnnounced(stream, true);
  basis_->record.BeganHandle(recording::SpanKind::kCapture, capture, "capture");
  return Status();
}

// The order matters: the device's count ends last, for until then other threads must not wait for the device.
CUstream Pool::EndCapture(CaptureHandle capture) {
  blocks_.ClosePart(captures_.PartOfCapture(capture), captures_);
  const GraphCaptures::Origin origin = captures_.End(capture);
  basis_->device->captures().End(origin.devices);
  basis_->runtime.observer.CaptureAnnounced(origin.stream, false);
  basis_->runtime.EndHandle(recording::SpanKind::kCapture, capture);
  return origin.stream;
}

// Destroyed pools come first: a program that trims wants memory back, and cannot ask those pools any more.
Result<uint64_t> Pool::Trim(uint64_t keep_bytes) {
  const nvtx::Range range = basis_->Shown("trim");
  basis_->runtime.others.ReleaseDestroyed();
  return mode_->Trim(keep_bytes);
}

// A recording shows it as a span, with its failure.
Status Pool::Sleep(const SleepRequest& request, OtherPoolsOfCall others) {
  recording::Span span = basis_->record.Began(recording::SpanKind::kSleep, "sleep");
  return span.Ended(mode_->Sleep(request, others));
}

// It may be called for a pool that another thread ends: then the mode refuses.
Status Pool::Wake(const SleepRequest& request, OtherPoolsOfCall others) {
  recording::Span span = basis_->record.Began(recording::SpanKind::kWake, "wake");
  return span.Ended(mode_->Wake(request, others));
}

// A pool may be closed while it sleeps. Then copies of its blocks are left, which nobody can read any more.
Status Pool::Close() {
  COMMPOOL_TRY(basis_->CheckMayEnd());
  const nvtx::Range range = basis_->Shown("close");
  basis_->runtime.others.ReleaseDestroyed();
  // A refused close leaves importers and copies as they are.
  COMMPOOL_TRY(mode_->Close());
  basis_->runtime.shares.EndPool(handle());
  segments_.kept.Drop();
  return Status();
}

// From the first line on no allocation begins. The mode comes last, because it may release memory at once.
void Pool::Destroy() {
  basis_->life.Destroy();
  basis_->record.Tell(recording::PoolGone());
  basis_->runtime.shares.EndPool(handle());
  segments_.kept.Drop();
  mode_->AfterDestroy();
}

// First the mode stops its threads, which would use the pool: the publisher and the watch for lost ranks.
void Pool::Abandon() {
  mode_->BeforeAbandon();
  basis_->life.Abandon();
  segments_.Abandon();
}

// The counters of blocks are of one moment. The others are read after it, one by one, so they may be newer.
commpool_statistics Pool::Statistics(BlockStore::Peaks peaks) const {
  commpool_statistics statistics = blocks_.Statistics(peaks);
  statistics.registered_segments = segments_.registrations.registrations();
  statistics.pending_segments = segments_.registrations.pending(segments_.book.count());
  statistics.held_bytes = segments_.registrations.held_bytes();
  statistics.failed_allocations = basis_->events.failed_allocations.load(std::memory_order_relaxed);
  statistics.moved_bytes = basis_->events.moved_bytes.load(std::memory_order_relaxed);
  statistics.asleep_bytes = segments_.room.asleep_bytes();
  statistics.kept_bytes = segments_.kept.bytes();
  statistics.host_waits = basis_->events.host_waits.load(std::memory_order_relaxed);
  return statistics;
}

// Runtime::Record calls it for every pool, with the recording already on. So what changes meanwhile is recorded twice
// rather than never.
void Pool::RecordPresent() {
  if (!basis_->record.on()) return;
  basis_->record.WasThere();
  basis_->RecordMade();
  RecordBlocks(*basis_, blocks_);
  segments_.registrations.RecordPresent();
}

// Pauses the pool's caches for a moment, as Statistics does.
void Pool::RecordSlice() {
  const MemoryAccount* const budget = segments_.room.budget();
  blocks_.TellStatistics(BlockStore::Peaks::kKeep, [&](const engine::Counters& counters) {
    basis_->record.Bytes({.reserved = counters.reserved_bytes.current,
                          .allocated = counters.allocated_bytes.current,
                          .requested = counters.requested_bytes.current,
                          .cached = counters.cached_bytes,
                          .pending = counters.pending_bytes,
                          .budget = budget == nullptr ? 0 : budget->taken(),
                          .budget_peak = budget == nullptr ? 0 : budget->peak(),
                          .budget_limit = budget == nullptr ? 0 : budget->limit()});
  });
  const engine::ClassCounts counts = basis_->runtime.caches.CountClasses(handle());
  for (engine::SizeClass size_class = 0; size_class < engine::kSizeClasses; ++size_class) {
    basis_->record.Small(engine::ClassBytes(size_class),
                         counts.taken[size_class] + basis_->events.served_small[size_class].load(),
                         counts.cached[size_class]);
  }
}

}  // namespace commpool::internal
