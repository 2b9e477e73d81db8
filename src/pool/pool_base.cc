#include "src/pool/pool_base.h"

#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/log.h"
#include "src/driver/diagnosis.h"
#include "src/pool/bounded_wait.h"

namespace commpool::internal {

engine::EngineOptions PoolParts::engine_options() const {
  engine::EngineOptions options;
  options.alignment = configuration.alignment_bytes;
  options.granularity = granularity();
  options.rounding = engine::Rounding::kClasses;
  options.spaces = engine::Spaces::kApart;
  options.segment_bytes = configuration.segment_bytes;
  if (configuration.segment_bytes != 0) options.page_bytes = RoundUp(configuration.segment_bytes, granularity());
  return options;
}

template <typename Engine>
PoolBase<Engine>::PoolBase(PoolParts&& parts, Engine engine, RegistrationKind registration_kind)
    : driver_(parts.driver),
      shared_(parts.shared),
      words_(parts.shared),
      device_(std::move(parts.device)),
      configuration_(std::move(parts.configuration)),
      granularity_(std::max(configuration_.granularity_bytes, parts.backing->granularity())),
      registrations_(driver_, registration_kind, configuration_.deadline_ms, parts.shared.windows),
      engine_(std::move(engine)),
      segments_(std::move(parts.backing), configuration_.alignment_bytes),
      peers_(configuration_.peers.begin(), configuration_.peers.end()) {}

template <typename Engine>
PoolBase<Engine>::~PoolBase() {
  shared_.caches->Close(handle(), CacheRegistry::Reopen::kNever);  // abandoned: what they hold goes with the segments
  if (segments_.count() == 0) return;
  // Only an abandoned pool still has segments here: the memory goes with the process.
  for (Segment* segment : segments_.Pointers()) segment->Abandon();
}

template <typename Engine>
std::string PoolBase<Engine>::Title() const {
  return "pool " + configuration_.name + " (" + segments_.backing().name() + ", device " + std::to_string(device()) +
         ")";
}

template <typename Engine>
Status PoolBase<Engine>::CheckOpen() const {
  if (!open_.load(std::memory_order_acquire)) {
    return Status(StatusCode::kFailedPrecondition, Title() + " is closed");
  }
  return device_->health().first_error();
}

template <typename Engine>
Status PoolBase<Engine>::Failed(Status status) {
  failed_allocations_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

template <typename Engine>
Result<CUdeviceptr> PoolBase<Engine>::FinishServing(const engine::Served& served, uint64_t requested,
                                                    StreamKey stream) {
  if (!served.waits.empty()) {
    ContextGuard guard(driver_, device_->context());
    for (const engine::StreamUse& use : served.waits) {
      Status status = use.fence != engine::kNoFence ? device_->fences().MakeWait(stream, use.fence)
                                                    : device_->fences().MakeWaitForStream(stream, use.stream);
      // The block stays live in nobody's hands: freed again, it would serve somebody without the waits that it still
      // needs.
      if (!status.ok()) return status;
    }
  }
  const bool cacheable = CachingNow() == Caching::kYes && handle() != 0;
  words_.Publish(this->shared_from_this(), served.address, served.bytes, requested, stream,
                 cacheable ? Caching::kYes : Caching::kNo);
  return CUdeviceptr{served.address};
}

template <typename Engine>
Status PoolBase<Engine>::Free(CUdeviceptr address) {
  const Result<uint64_t> requested = words_.Withdraw(address);
  if (!requested.ok()) return Status(requested.status().code(), Title() + ": free: " + requested.status().message());
  if (IsToldOfFrees(address)) words_.TellFreed(address);  // before another thread may be served the block
  std::vector<StreamKey> streams;
  Recordings::Scope recording;
  {
    MutexLock lock(mutex_);
    Result<engine::Freed> freed = FreeInEngine(address);
    if (!freed.ok()) return Status(freed.status().code(), Title() + ": " + freed.status().message());
    if (*requested != 0) requested_correction_ += static_cast<int64_t>(freed->requested - *requested);
    streams = std::move(freed->streams_to_fence);
    recording = recordings_.Begin(streams);
  }
  Status status;
  if (!streams.empty() && !device_->health().broken()) {
    ContextGuard guard(driver_, device_->context());
    for (const StreamKey stream : streams) {
      Result<FenceId> fence = device_->fences().Record(stream);
      if (!fence.ok()) {
        // Without its fence the block stays closed for ever: quarantined, as rule 9 asks for.
        status = fence.status();
        break;
      }
      MutexLock lock(mutex_);
      engine_.AttachFence(address, stream, *fence);
    }
  }
  recording.End();  // what follows may lock what those hold that forget a stream
  AfterFree();
  return status;
}

template <typename Engine>
void PoolBase<Engine>::TakeBack(const std::vector<engine::CachedBlock>& blocks) {
  if (blocks.empty()) return;
  {
    MutexLock lock(mutex_);
    for (const engine::CachedBlock& block : blocks) {
      block.word->store(0, std::memory_order_release);
      Result<engine::Freed> freed = engine_.Free(block.address);
      COMMPOOL_CHECK(freed.ok(), "a cache held a block that its pool does not know");
      requested_correction_ += static_cast<int64_t>(freed->requested);
    }
  }
  AfterFree();
}

template <typename Engine>
Status PoolBase<Engine>::RecordStream(CUdeviceptr address, StreamKey stream) {
  // Freed from now on, the block must wait for the other stream: no cache may take it.
  const Result<uint64_t> requested = words_.MakeUncacheable(address);
  if (!requested.ok()) {
    return Status(requested.status().code(), Title() + ": record_stream: " + requested.status().message());
  }
  Status status;
  {
    MutexLock lock(mutex_);
    if (*requested != 0) {
      Result<engine::BlockView> view = engine_.Find(address);
      // At its free the engine takes off what it knows itself: the block counts as that from now on.
      if (view.ok()) requested_correction_ += static_cast<int64_t>(view->requested_bytes - *requested);
    }
    status = engine_.RecordStream(address, stream);
  }
  if (status.ok()) words_.TellRecorded(address, stream);
  return status;
}

template <typename Engine>
void PoolBase<Engine>::PollFences() {
  std::vector<engine::Fence> pending;
  {
    MutexLock lock(mutex_);
    pending = engine_.PendingFences();
  }
  if (pending.empty()) return;
  ContextGuard guard(driver_, device_->context());
  for (const engine::Fence fence : pending) {
    Result<bool> passed = device_->fences().Passed(fence);
    if (!passed.ok()) return;  // a sticky error: the next call reports it
    if (!*passed) continue;
    {
      MutexLock lock(mutex_);
      engine_.FencePassed(fence);
    }
    device_->fences().Retire(fence);
  }
}

template <typename Engine>
Status PoolBase<Engine>::WaitForDevice() {
  std::vector<engine::Fence> over;
  engine::Moment moment = 0;
  {
    MutexLock lock(mutex_);
    over = engine_.PendingFences();
    moment = engine_.Now();
  }
  Status status = device_->Quiesce(configuration_.deadline_ms);
  if (!status.ok()) return status;
  for (const engine::Fence fence : over) {
    status = device_->Await(fence, configuration_.deadline_ms);
    if (!status.ok()) return status;
  }
  {
    MutexLock lock(mutex_);
    engine_.DeviceIdle(moment);  // blocks freed meanwhile, by other threads, keep their uses
  }
  for (const engine::Fence fence : over) device_->fences().Retire(fence);
  return Status();
}

template <typename Engine>
void PoolBase<Engine>::ForgetStream(StreamKey stream) {
  {
    MutexLock lock(mutex_);
    engine_.ForgetStream(stream);  // no later call records on it
  }
  recordings_.AwaitEnd(stream);
  MutexLock lock(mutex_);
  engine_.ForgetStream(stream);  // nor does a fence recorded meanwhile count
}

template <typename Engine>
engine::SegmentIndex PoolBase<Engine>::Adopt(std::unique_ptr<Segment> segment, engine::Space space) {
  const CUdeviceptr address = segment->address();
  const uint64_t bytes = segment->bytes();
  // The table comes first: once the engine knows the segment, another thread may be handed a block of it and free it.
  shared_.table.AddRange(address, bytes, this->shared_from_this());
  words_.Cover({address, bytes});
  MutexLock lock(mutex_);
  const engine::SegmentIndex index = engine_.AddSegment({address, bytes}, space);
  segments_.Put(index, std::move(segment));
  return index;
}

template <typename Engine>
std::unique_ptr<Segment> PoolBase<Engine>::TakeIfIdle(engine::SegmentIndex index) {
  std::unique_ptr<Segment> segment;
  {
    MutexLock lock(mutex_);
    if (!engine_.IsIdle(index)) return nullptr;
    engine_.RemoveSegment(index);
    segment = segments_.Take(index);
  }
  shared_.table.RemoveRange(segment->address());
  return segment;
}

template <typename Engine>
Status PoolBase<Engine>::TakeDeviceRoom(uint64_t bytes) {
  if (!on_device() || device_->account().Take(bytes)) return Status();
  return Status(StatusCode::kOutOfMemory, Title() + ": " + FormatBytes(bytes) +
                                              " more would exceed the limit of device " + std::to_string(device()) +
                                              ", " + FormatBytes(device_->account().limit()));
}

template <typename Engine>
void PoolBase<Engine>::GiveRoomBack(uint64_t bytes) {
  if (on_device()) device_->account().GiveBack(bytes);
}

template <typename Engine>
std::vector<SegmentToRegister> PoolBase<Engine>::Segments() const {
  MutexLock lock(mutex_);
  return segments_.List();
}

template <typename Engine>
Status PoolBase<Engine>::Grant(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  for (const int peer : peers) {
    if (peer == device()) continue;
    const Capability capability = segments_.backing().CanGrant(peer);
    if (!capability.available) return Status(StatusCode::kNotSupported, Title() + ": " + capability.reason);
  }
  std::vector<Segment*> segments;
  {
    MutexLock lock(mutex_);
    segments = segments_.Pointers();
  }
  std::vector<std::pair<Segment*, int>> granted;
  for (const int peer : peers) {
    if (peer == device() || peers_.contains(peer)) continue;
    for (Segment* segment : segments) {
      Status status = segment->Grant(peer);
      if (!status.ok()) {
        for (auto& [done, to] : granted) static_cast<void>(done->Revoke(to));
        return status;
      }
      granted.emplace_back(segment, peer);
    }
  }
  for (const int peer : peers) {
    if (peer != device()) peers_.insert(peer);
  }
  return Status();
}

template <typename Engine>
Status PoolBase<Engine>::WaitForPeer(int peer) const {
  Result<PrimaryContext> context = PrimaryContext::Retain(driver_, peer);
  if (!context.ok()) return context.status();
  const std::optional<CUresult> result = SynchroniseWithin(driver_, context->get(), configuration_.deadline_ms);
  if (!result) {
    context->Abandon();  // the wait goes on
    return Status(StatusCode::kDeadlineExceeded, Title() + ": device " + std::to_string(peer) +
                                                     " is still busy after " +
                                                     std::to_string(configuration_.deadline_ms) +
                                                     " ms, no access was revoked: a collective waits for a rank?");
  }
  return CheckCuda(driver_, *result,
                   {.call = "cuCtxSynchronize", .device = peer, .purpose = "revoking access to " + Title()});
}

template <typename Engine>
Status PoolBase<Engine>::Revoke(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  const Capability capability = segments_.backing().CanRevoke();
  if (!capability.available) return Status(StatusCode::kFailedPrecondition, Title() + ": " + capability.reason);
  for (const int peer : peers) {
    if (!peers_.contains(peer)) {
      return Status(StatusCode::kNotFound, Title() + " was never granted to device " + std::to_string(peer));
    }
  }
  Status status = device_->Quiesce(configuration_.deadline_ms);
  for (auto peer = peers.begin(); status.ok() && peer != peers.end(); ++peer) status = WaitForPeer(*peer);
  if (!status.ok()) return status;
  std::vector<Segment*> segments;
  {
    MutexLock lock(mutex_);
    segments = segments_.Pointers();
  }
  for (const int peer : peers) {
    for (Segment* segment : segments) {
      status = segment->Revoke(peer);
      if (!status.ok()) return status;
    }
    peers_.erase(peer);
  }
  return Status();
}

template <typename Engine>
Result<WindowPlace> PoolBase<Engine>::WindowOf(CUdeviceptr address, ncclComm_t communicator) const {
  return registrations_.Find(communicator, address);
}

template <typename Engine>
uint64_t PoolBase<Engine>::ReservedBytes() const {
  MutexLock lock(mutex_);
  return engine_.counters().reserved_bytes.current;
}

template <typename Engine>
PoolFigures PoolBase<Engine>::Figures() const {
  PoolFigures figures;
  const engine::CacheFigures caches = shared_.caches->Figures(handle());
  engine::Counters& counters = figures.counters;
  uint64_t segments = 0;
  int64_t correction = 0;
  {
    MutexLock lock(mutex_);
    counters = engine_.counters();
    segments = segments_.count();
    correction = requested_correction_;
  }
  // The engine takes what is in threads' caches for allocated; its peaks keep that.
  counters.requested_bytes.current +=
      static_cast<uint64_t>(correction) + caches.taken_requested - caches.given_requested;
  counters.requested_bytes.total += caches.taken_requested;
  // Blocks that left a cache between the two readings are in both figures.
  counters.allocated_bytes.current -= std::min(caches.cached_bytes, counters.allocated_bytes.current);
  counters.allocated_bytes.total += caches.taken_bytes;
  counters.allocated_blocks.current -= std::min(caches.cached_blocks, counters.allocated_blocks.current);
  counters.allocated_blocks.total += caches.taken_blocks;
  counters.free_bytes += caches.cached_bytes;
  for (engine::Counter* counter : {&counters.requested_bytes, &counters.allocated_bytes, &counters.allocated_blocks}) {
    counter->peak = std::max(counter->peak, counter->current);
  }
  figures.registered_segments = registrations_.registrations();
  figures.pending_segments = registrations_.pending(segments);
  figures.failed_allocations = failed_allocations_.load(std::memory_order_relaxed);
  figures.cached_bytes = caches.cached_bytes;
  figures.moved_bytes = moved_bytes_.load(std::memory_order_relaxed);
  figures.host_waits = host_waits_.load(std::memory_order_relaxed);
  return figures;
}

template <typename Engine>
void PoolBase<Engine>::ResetPeaks() {
  MutexLock lock(mutex_);
  engine_.ResetPeaks();
}

template <typename Engine>
void PoolBase<Engine>::CheckInvariants() const {
  MutexLock lock(mutex_);
  engine_.CheckInvariants();
}

template <typename Engine>
void PoolBase<Engine>::Abandon() {
  open_ = false;
  std::vector<SegmentToRegister> segments;
  {
    MutexLock lock(mutex_);
    segments = segments_.List();
    for (Segment* segment : segments_.Pointers()) segment->Abandon();
  }
  for (const SegmentToRegister& segment : segments) shared_.table.RemoveRange(segment.address);
}

template class PoolBase<engine::CachingEngine>;
template class PoolBase<engine::ExpandableEngine>;
template class PoolBase<engine::SymmetricEngine>;

}  // namespace commpool::internal
