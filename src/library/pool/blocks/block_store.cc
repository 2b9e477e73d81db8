// BlockStore: every call of the engine, under the pool's lock; and the driver's calls for blocks, outside of it.
// At the end: what programs and recordings see of the blocks, and what caches have done with them since.
#include "src/library/pool/blocks/block_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/library/base/check.h"
#include "src/library/base/try.h"
#include "src/library/pool/blocks/graph_captures.h"

namespace commpool::internal {

namespace {

std::vector<StreamKey> StreamsOf(const std::vector<engine::MissingFence>& missing) {
  std::vector<StreamKey> streams;
  for (const engine::MissingFence& fence : missing) streams.push_back(fence.stream);
  return streams;
}

// A block as programs see it: one in a cache is not live. Looks at the block's word, which a cache may change
// meanwhile. The stream is the engine's key here; Runtime::Shown puts its handle there.
void Describe(const PoolBasis& basis, commpool_block& block) {
  block.pool = basis.handle;
  block.device = basis.device->device();
  if (block.state != COMMPOOL_BLOCK_LIVE) return;
  // The engine takes a cached block for live; its word knows better. A cache may also have served the block again for
  // another size than the engine has noted.
  const engine::BlockWord word = basis.runtime.caches.WordOf(reinterpret_cast<CUdeviceptr>(block.pointer));
  if (word.state() == engine::BlockWord::State::kCacheable) block.requested_bytes = word.requested();
  if (word.state() != engine::BlockWord::State::kCached) return;
  block.state = COMMPOOL_BLOCK_CACHED;
  block.requested_bytes = 0;
}

std::vector<commpool_block> Listed(const PoolBasis& basis, const BlockStore& blocks) COMMPOOL_REQUIRES(blocks.mutex()) {
  std::vector<commpool_block> listed = blocks.engine().Snapshot();
  for (commpool_block& block : listed) Describe(basis, block);
  return listed;
}

}  // namespace

BlockStore::BlockStore(PoolBasis& basis, std::unique_ptr<engine::Engine> engine)
    : basis_(basis), engine_(std::move(engine)) {}

// After this no cache names the pool; the blocks in them go with the pool's memory.
BlockStore::~BlockStore() { basis_.runtime.caches.ForgetPool(basis_.handle); }

// Called by the modes, without the pool's lock. The block is live in the engine, and unknown to every other thread.
Result<CUdeviceptr> BlockStore::HandOut(const engine::Served& served, uint64_t requested, StreamKey stream,
                                        Caching caching, Waits waits) {
  if (waits == Waits::kOutside && !MayWaitFor(served)) {
    TakeBackUnserved(served);
    return CUdeviceptr{0};
  }
  for (const engine::StreamUse& use : served.waits) {
    const Status made = MakeWait(stream, use);
    if (made.ok()) continue;
    TakeBackUnserved(served);
    return made;
  }
  Announce({served.address, served.bytes}, requested, stream, caching);
  return CUdeviceptr{served.address};
}

// An event is used where there is one. For all of a stream's work: the host waits where the stream may be gone; nobody
// waits where it is idle; else the waiter gets an event that is recorded now.
Status BlockStore::MakeWait(StreamKey waiter, const engine::StreamUse& use) {
  FenceTable& fences = basis_.fences();
  if (use.fence != engine::kNoFence) return fences.MakeWait(waiter, use.fence);
  // The handle may mean another stream by now, so nobody may pass it to the driver (rule 11).
  if (MayHaveDied(use.stream)) return basis_.runtime.devices.Quiesce({PlaceOf(use.stream)}, basis_.deadline_ms());
  const bool idle = COMMPOOL_TRY(IsIdle(use.stream));
  return idle ? Status() : fences.MakeWaitForStream(waiter, use.stream);
}

Result<bool> BlockStore::HasFinished(StreamKey stream) const {
  if (!IsReachable(stream) || basis_.MayCapture(stream)) return false;
  const Result<bool> idle = basis_.fences().IsIdle(stream);
  // Another device's failure is no error of this pool.
  return idle.ok() || PlaceOf(stream) == basis_.device->device() ? idle : Result<bool>(false);
}

// The moment is taken under the lock, the question asked without it, and the answer told under it again.
Result<bool> BlockStore::IsIdle(StreamKey stream) {
  if (basis_.configuration.symmetric()) return false;  // ranks must not act on what one of them finds (rule 4)
  // The driver's answer covers what was freed by now. Other threads may free more before the answer comes.
  const engine::Moment now = Ask(&engine::Engine::Now);
  const bool idle = COMMPOOL_TRY(HasFinished(stream));
  MutexLock lock(mutex_);
  if (idle) engine_->StreamIdle(stream, now);
  return idle;
}

// Caches know pools by their handles, so they keep nothing of a pool that has none yet.
void BlockStore::AnnounceSmall(const engine::SegmentRange& block, uint64_t requested, StreamKey stream,
                               Caching caching) {
  const bool cached = caching == Caching::kYes && basis_.handle != 0;
  if (!cached) basis_.record.Served(block.address, block.bytes, requested, WithoutPlace(stream));
  if (cached && basis_.record.on()) PoolEvents::Count(basis_.events.served_small[engine::ClassOf(block.bytes)]);
  if (cached) has_cached_.store(true, std::memory_order_relaxed);
  const CachedPool pool{basis_.handle, basis_.owner, basis_.configuration.alignment_bytes,
                        &basis_.device->health().broken_flag()};
  basis_.runtime.caches.Publish(pool, block, requested, stream, cached ? Caching::kYes : Caching::kNo);
}

// In this order: the word, without a lock; observers; the engine; fences; importers. Each step may use what the one
// before has done.
Status BlockStore::Free(CUdeviceptr address) {
  // If two threads free one block, the block's word lets one of them pass; the other gets its error here.
  const std::optional<uint64_t> requested = basis_.runtime.caches.Withdraw(address);
  if (!requested) return basis_.Named(ThreadCaches::FreedAlready(address).under("free"));
  // Whether importers may hold the block.
  const bool has_ticket =
      has_tickets_.load(std::memory_order_acquire) && Ask(&engine::Engine::HasMark, address, engine::Mark::kTicket);
  const MemoryObserver& observer = basis_.runtime.observer;
  // Before the engine frees the block: after that another thread may have it already. A block of a graph's part is in
  // use beyond its free: a replay of the graph would use it again.
  if (observer.watches_blocks() && !has_ticket && Ask(&engine::Engine::PartOf, address) == engine::kCommonPart) {
    observer.BlockFreed(address);
  }
  std::optional<RecordingStreams::Scope> recording;
  const engine::Reasons also = has_ticket ? ReasonsOf(engine::Reason::kImporters) : 0;
  const auto close = [&] {
    MutexLock lock(mutex_);
    NoteHolding();
    Result<engine::Freed> freed = engine_->Free(address, also);
    if (!freed.ok()) return freed;
    basis_.record.Freed(address);  // under the lock: before another thread gets the block
    // 0: the engine knows the size that was asked for.
    if (*requested != 0) requested_correction_ += static_cast<int64_t>(freed->requested - *requested);
    // Under the lock that found the streams, so that ForgetStream misses none (RecordingStreams).
    if (!freed->missing.empty()) recording.emplace(basis_.recording_streams, StreamsOf(freed->missing));
    return freed;
  };
  const Result<engine::Freed> freed = close();
  if (!freed.ok()) return basis_.Named(freed.status());
  const Status status = recording ? RecordFences(freed->missing) : Status();
  // Once the block is closed: where importers hold it, the server's call of LetGo may come at once.
  if (has_ticket && basis_.runtime.shares.MayServe(basis_.handle, address)) LetGo(address);
  return status;
}

// Mostly no graph is gone.
void BlockStore::ReleaseParts(const std::vector<engine::Part>& parts) {
  if (parts.empty()) return;
  MutexLock lock(mutex_);
  for (const engine::Part part : parts) engine_->ReleasePart(part);
}

// Importers may let go of blocks that the program has not freed: then nothing closes the block. Observers hear of the
// free before the memory may serve again.
void BlockStore::LetGo(CUdeviceptr address) {
  if (!Ask(&engine::Engine::IsClosedBy, address, engine::Reason::kImporters)) return;
  basis_.runtime.observer.BlockFreed(address);
  MutexLock lock(mutex_);
  engine_->EndReason(address, engine::Reason::kImporters);
}

// Each fence is recorded outside of the lock and then attached under it. Another thread may have got the block
// meanwhile (Engine::AttachFence).
Status BlockStore::RecordFences(const std::vector<engine::MissingFence>& missing) {
  // No event can be recorded any more: the block stays closed (rule 9).
  if (basis_.device->health().broken()) return Status();
  for (const engine::MissingFence& fence : missing) {
    if (!IsReachable(fence.stream) || COMMPOOL_TRY(basis_.Captures(fence.stream))) continue;
    // The CPU is often ahead of streams that have nothing to do: then the block serves at once.
    bool idle = basis_.own_reuse == engine::OwnReuse::kOncePassed;
    if (idle) idle = COMMPOOL_TRY(HasFinished(fence.stream));
    if (idle) {
      MutexLock lock(mutex_);
      engine_->CancelFence(fence);
      continue;
    }
    // Till then the block is closed: after a failure the next poll tries again, and a wait for the device opens it.
    const FenceId recorded = COMMPOOL_TRY(basis_.fences().Record(fence.stream));
    MutexLock lock(mutex_);
    engine_->AttachFence(fence, recorded);
  }
  return Status();
}

// One event serves all that the stream has freed. Frees after `moment` are not covered: their work may come behind the
// event.
Status BlockStore::FenceFreed(StreamKey stream) {
  const ContextGuard current = basis_.MakeCurrent(stream);
  if (COMMPOOL_TRY(basis_.Captures(stream))) return Status();
  const engine::Moment moment = Ask(&engine::Engine::Now);
  const FenceId fence = COMMPOOL_TRY(basis_.fences().Record(stream));
  MutexLock lock(mutex_);
  engine_->FenceStream(stream, fence, moment);
  return Status();
}

void BlockStore::ClosePart(engine::Part part, GraphCaptures& captures) {
  std::set<StreamKey> streams;
  engine::Moment now = 0;
  std::optional<RecordingStreams::Scope> recording;
  {
    MutexLock lock(mutex_);
    now = engine_->Now();
    streams = engine_->StreamsOf(part);
    if (!streams.empty()) recording.emplace(basis_.recording_streams, std::vector(streams.begin(), streams.end()));
  }
  const bool running = captures.IsRunning(part);
  GraphCaptures::Done done = captures.DoneBy(part);  // after the question, which may add a stream
  for (const StreamKey stream : streams) {
    if (captures.IsJoinedBy(part, stream)) done.joined.insert(stream);
  }
  {
    MutexLock lock(mutex_);
    engine_->ClosePart(part, running ? now : done.last_free, done.joined);
    streams = engine_->StreamsOf(part);
  }
  // Without an event the memory waits for a later call of the stream, or for the device.
  for (const StreamKey stream : streams) {
    if (IsReachable(stream)) static_cast<void>(FenceFreed(stream));
  }
}

// Another thread may be recording one of them as well: then the block gets one of the two fences.
void BlockStore::RecordMissingFences() {
  std::vector<engine::MissingFence> missing;
  std::optional<RecordingStreams::Scope> recording;
  {
    MutexLock lock(mutex_);
    missing = engine_->MissingFences();
    std::erase_if(missing, [](const engine::MissingFence& fence) { return MayHaveDied(fence.stream); });
    if (missing.empty()) return;
    recording.emplace(basis_.recording_streams, StreamsOf(missing));
  }
  for (const engine::MissingFence& fence : missing) static_cast<void>(RecordFences({fence}));
}

// Uses that have a fence can always be waited for.
bool BlockStore::MayWaitFor(const engine::Served& served) const {
  return std::all_of(served.waits.begin(), served.waits.end(), [&](const engine::StreamUse& use) {
    if (use.fence != engine::kNoFence) return true;
    if (!IsReachable(use.stream)) return !basis_.MayCapture(use.stream);
    const Result<bool> captures = basis_.Captures(use.stream);
    return captures.ok() && !*captures;
  });
}

// The program never saw the block, so no word and no record of it exist.
void BlockStore::TakeBackUnserved(const engine::Served& served) {
  MutexLock lock(mutex_);
  // As if the program had used the block on these streams and freed it: then it opens after their fences.
  NoteHolding();
  for (const engine::StreamUse& use : served.waits) {
    const Status noted = engine_->RecordStream(served.address, use.stream);
    COMMPOOL_CHECK(noted.ok(), "a block that was just served is not live");
  }
  const Result<engine::Freed> freed = engine_->Free(served.address);
  COMMPOOL_CHECK(freed.ok(), "a block that was just served cannot be freed");
}

// Peaks count what the program uses, and blocks in caches are not in use. So the engine hears first how much this
// thread's caches have held since the last look, and only then of the frees.
bool BlockStore::TakeBack(const engine::ReturnedBlocks& returned) {
  MutexLock lock(mutex_);
  engine::Tally held = basis_.runtime.caches.OwnHolding(basis_.handle).least;
  held += returned.held;
  Note({held, held});
  for (const engine::CachedBlock& block : returned.blocks) {
    const engine::Tally tally = engine::TallyOf(engine::BlockWord(block.word->load(std::memory_order_relaxed)));
    taken_back_ += tally;
    // Before the engine may serve the address again, whose new word must not be overwritten.
    block.word->store(0, std::memory_order_release);
    Result<engine::Freed> freed = engine_->Free(block.address);
    COMMPOOL_CHECK(freed.ok(), "a cache held a block that its pool does not know");
    requested_correction_ += static_cast<int64_t>(freed->requested) - tally.requested;
  }
  requested_correction_ -= returned.requested_more;
  return !returned.blocks.empty();
}

void BlockStore::LetCachesReopen() {
  if (!basis_.life.open()) return;
  basis_.runtime.caches.LetReopen(basis_.handle);
  // It may have ended in between, after it had closed them.
  if (!basis_.life.open()) TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kNever));
}

// The engine counts the sizes that it served; caches count the sizes that were asked of them.
void BlockStore::Note(engine::Holding holding) const {
  holding.least.requested -= requested_correction_;
  holding.now.requested -= requested_correction_;
  engine_->NoteHolding(holding);
}

// It takes the locks `caches` and `pool` one after the other. In between the block can only be freed, which the engine
// then says.
Status BlockStore::RecordStream(CUdeviceptr address, StreamKey stream) {
  // Of its own stream a block needs no note, and a cache may still take it.
  const bool cacheable = basis_.runtime.caches.WordOf(address).state() == engine::BlockWord::State::kCacheable;
  if (cacheable && Ask(&engine::Engine::IsOwnStream, address, stream)) return Status();
  // From now on a free of the block must wait for the other stream, so no cache may take it.
  const Status uncacheable = MakeUncacheable(address);
  if (!uncacheable.ok()) return basis_.Named(uncacheable.under("record_stream"));
  MutexLock lock(mutex_);
  return engine_->RecordStream(address, stream);
}

// A requested size of 0 means that no cache could take the block before, so nothing has to be corrected.
Status BlockStore::MakeUncacheable(CUdeviceptr address) {
  const uint64_t requested = COMMPOOL_TRY(basis_.runtime.caches.MakeUncacheable(address));
  if (requested == 0) return Status();
  MutexLock lock(mutex_);
  // The engine knows the size that it served, and the caches have counted the one that their user asked for.
  requested_correction_ += engine_->CorrectRequested(address, requested);
  return Status();
}

// The mark must end with the block. A free into a cache does not pass here, so from now on no cache may take the block.
bool BlockStore::SetMark(CUdeviceptr address, engine::Mark mark) {
  // Before the mark: a free that follows must look.
  if (mark == engine::Mark::kTicket) has_tickets_.store(true, std::memory_order_release);
  if (!MakeUncacheable(address).ok()) return false;
  MutexLock lock(mutex_);
  return engine_->SetMark(address, mark);  // another thread may have freed it meanwhile
}

// Asks the driver without the lock. Where no fence is pending this is one look under the lock.
bool BlockStore::PollFences() {
  std::vector<engine::Fence> pending;
  bool lacking = false;
  {
    MutexLock lock(mutex_);
    lacking = engine_->HasClosedBlocks();
    if (!lacking && !engine_->HasPendingFences()) return false;
    pending = engine_->PendingFences();
  }
  if (lacking) RecordMissingFences();
  FenceTable& fences = basis_.fences();
  const std::vector<engine::Fence> passed = fences.PassedOf(pending);  // the next call reports a sticky error
  if (passed.empty()) return false;
  {
    MutexLock lock(mutex_);
    for (const engine::Fence fence : passed) engine_->FencePassed(fence);
  }
  // Last: a retired event may be recorded for other work, and the engine must have forgotten it by then.
  for (const engine::Fence fence : passed) fences.Retire(fence);
  return true;
}

// All under one hold of the lock, so the moment and the fences belong together.
BlockStore::Uses BlockStore::NoteUses() {
  RecordMissingFences();
  Uses uses;
  MutexLock lock(mutex_);
  uses.moment = engine_->Now();
  uses.places = engine_->Places();
  uses.places.insert(basis_.device->device());
  uses.fences = engine_->PendingFences();
  // A block that was just served waits for fences which none names any more: at another place they have not passed.
  std::erase_if(uses.fences, [&](const engine::Fence fence) { return !uses.places.contains(PlaceOf(fence)); });
  return uses;
}

// Fences retire after the engine has forgotten them: their events serve again at once.
void BlockStore::ForgetUses(const Uses& uses) {
  {
    MutexLock lock(mutex_);
    // Other threads may have freed blocks meanwhile: these keep their uses.
    for (const int place : uses.places) engine_->DeviceIdle(place, uses.moment);
    for (const engine::MissingFence& fence : engine_->MissingFences()) {
      const bool over = fence.freed_at <= uses.moment && uses.places.contains(PlaceOf(fence.stream));
      if (over) engine_->CancelFence(fence);
    }
  }
  for (const engine::Fence fence : uses.fences) basis_.fences().Retire(fence);
}

Status BlockStore::WaitForDevice(const Patience& patience, FunctionRef<bool()> is_vain) {
  // Before the wait: what is freed during the wait is not covered by it.
  const Uses uses = NoteUses();
  COMMPOOL_TRY(basis_.runtime.devices.Quiesce(uses.places, patience, is_vain));
  ForgetUses(uses);
  return Status();
}

// Caches first: their blocks are freed to the pool, where they forget the stream like all others. The mode calls it for
// Runtime::ReleaseStream, once the stream's work is done.
void BlockStore::ForgetStream(StreamKey stream) {
  TakeBack(basis_.runtime.caches.ForgetStream(basis_.handle, stream));
  {
    MutexLock lock(mutex_);
    engine_->ForgetStream(stream);  // so that no later call records on the stream
  }
  basis_.recording_streams.AwaitEnd(stream);
  MutexLock lock(mutex_);
  engine_->ForgetStream(stream);  // once more: other calls may have recorded a fence on it meanwhile
}

engine::Counters BlockStore::Statistics(Peaks peaks) const {
  engine::Counters counters;
  TellStatistics(peaks, [&](const engine::Counters& now) { counters = now; });
  return counters;
}

// ThreadCaches pauses all caches of the pool meanwhile, and the pool's lock is taken inside of that: so all counters
// are of one moment. For the engine blocks in caches are live; for the program they are free.
void BlockStore::TellStatistics(Peaks peaks, FunctionRef<void(const engine::Counters& counters)> tell) const {
  basis_.runtime.caches.Statistics(basis_.handle, [&](const engine::CacheStatistics& caches) {
    MutexLock lock(mutex_);
    Note(caches.holding);
    engine::Counters counters = engine_->counters();
    if (peaks == Peaks::kForget) engine_->ResetPeaks();
    engine::Tally cached = caches.holding.now;  // in a cache, or on the way from one to the pool
    cached += caches.left;
    cached -= taken_back_;
    counters.cached_bytes = static_cast<uint64_t>(cached.bytes);
    cached.requested -= requested_correction_;
    counters.requested_bytes.current -= static_cast<uint64_t>(cached.requested);
    counters.allocated_bytes.current -= static_cast<uint64_t>(cached.bytes);
    counters.allocated_blocks.current -= static_cast<uint64_t>(cached.blocks);
    counters.requested_bytes.total += static_cast<uint64_t>(caches.taken.requested);
    counters.allocated_bytes.total += static_cast<uint64_t>(caches.taken.bytes);
    counters.allocated_blocks.total += static_cast<uint64_t>(caches.taken.blocks);
    counters.free_bytes += counters.cached_bytes;
    tell(counters);
  });
}

// The pool's lock keeps the block from being closed; a thread's cache may still take it meanwhile, if the program frees
// it now.
Result<commpool_block> FindBlock(const PoolBasis& basis, const BlockStore& blocks, CUdeviceptr address) {
  MutexLock lock(blocks.mutex());
  commpool_block block = COMMPOOL_TRY(blocks.engine().Find(address));
  Describe(basis, block);
  if (block.state == COMMPOOL_BLOCK_LIVE) return block;
  return NotFound("the block was freed");
}

std::vector<commpool_block> ListBlocks(const PoolBasis& basis, const BlockStore& blocks) {
  MutexLock lock(blocks.mutex());
  return Listed(basis, blocks);
}

// Under the lock, so that a block's free is recorded after the block. Neighbours of one segment are one range of
// memory.
void RecordBlocks(const PoolBasis& basis, const BlockStore& blocks) {
  MutexLock lock(blocks.mutex());
  engine::SegmentRange memory;
  uint64_t segment = 0;
  const auto tell_memory = [&] {
    if (memory.bytes > 0) basis.record.Tell(recording::SegmentMade{.address = memory.address, .bytes = memory.bytes});
  };
  const std::vector<commpool_block> listed = Listed(basis, blocks);
  for (const commpool_block& block : listed) {
    // Addresses of an expandable pool without a page.
    if (block.state == COMMPOOL_BLOCK_UNMAPPED) continue;
    const auto address = reinterpret_cast<CUdeviceptr>(block.pointer);
    if (block.segment != segment || address != memory.address + memory.bytes) {
      tell_memory();
      memory = {address, 0};
      segment = block.segment;
    }
    memory.bytes += block.bytes;
  }
  tell_memory();
  for (const commpool_block& block : listed) {
    const auto address = reinterpret_cast<CUdeviceptr>(block.pointer);
    // The recorder knows small blocks by their caches' counts, not one by one.
    const bool cacheable = basis.runtime.caches.WordOf(address).state() == engine::BlockWord::State::kCacheable;
    if (block.state != COMMPOOL_BLOCK_LIVE || cacheable) continue;
    basis.record.Tell(recording::BlockServed{.address = address,
                                             .bytes = block.bytes,
                                             .requested = block.requested_bytes,
                                             .stream = WithoutPlace(block.stream)});
  }
}

}  // namespace commpool::internal
