#include "src/pool/pool_base.h"

#include <utility>

#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool {

template <typename Engine>
PoolBase<Engine>::PoolBase(PoolParts&& parts, Engine engine, RegistrationKind registration_kind)
    : driver_(parts.driver),
      table_(parts.table),
      device_(std::move(parts.device)),
      configuration_(std::move(parts.configuration)),
      registrations_(driver_, registration_kind, configuration_.deadline_ms),
      engine_(std::move(engine)),
      segments_(std::move(parts.backing), configuration_.alignment_bytes),
      peers_(configuration_.peers.begin(), configuration_.peers.end()) {}

template <typename Engine>
PoolBase<Engine>::~PoolBase() {
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
Result<CUdeviceptr> PoolBase<Engine>::FinishServing(const engine::Served& served, StreamKey stream) {
  if (served.waits.empty()) return CUdeviceptr{served.address};
  ContextGuard guard(driver_, device_->context());
  for (const engine::StreamUse& use : served.waits) {
    Status status = use.fence != engine::kNoFence ? device_->fences().MakeWait(stream, use.fence)
                                                  : device_->fences().MakeWaitForStream(stream, use.stream);
    // The block stays live in nobody's hands: freed again, it would serve somebody without the waits that it still
    // needs.
    if (!status.ok()) return status;
  }
  return CUdeviceptr{served.address};
}

template <typename Engine>
Status PoolBase<Engine>::Free(CUdeviceptr address) {
  std::vector<StreamKey> streams;
  {
    MutexLock lock(mutex_);
    Result<engine::Freed> freed = engine_.Free(address);
    if (!freed.ok()) return Status(freed.status().code(), Title() + ": " + freed.status().message());
    streams = std::move(freed->streams_to_fence);
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
  if (retired_.load(std::memory_order_acquire)) AfterFree();
  return status;
}

template <typename Engine>
Status PoolBase<Engine>::RecordStream(CUdeviceptr address, StreamKey stream) {
  MutexLock lock(mutex_);
  return engine_.RecordStream(address, stream);
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
  MutexLock lock(mutex_);
  engine_.ForgetStream(stream);
}

template <typename Engine>
engine::SegmentIndex PoolBase<Engine>::Adopt(std::unique_ptr<Segment> segment) {
  const CUdeviceptr address = segment->address();
  const uint64_t bytes = segment->bytes();
  // The table comes first: once the engine knows the segment, another thread may be handed a block of it and free it.
  table_.AddRange(address, bytes, this->shared_from_this());
  MutexLock lock(mutex_);
  const engine::SegmentIndex index = engine_.AddSegment({address, bytes});
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
  table_.RemoveRange(segment->address());
  return segment;
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
  ContextGuard guard(driver_, *context);
  return CheckCuda(driver_, driver_.cuda.cuCtxSynchronize(),
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
  uint32_t index = 0;
  {
    MutexLock lock(mutex_);
    Result<engine::BlockView> block = engine_.Find(address);
    if (!block.ok()) return block.status();
    index = block->segment;
  }
  return registrations_.Find(communicator, index, address);
}

template <typename Engine>
PoolFigures PoolBase<Engine>::Figures() const {
  PoolFigures figures;
  uint64_t segments = 0;
  {
    MutexLock lock(mutex_);
    figures.counters = engine_.counters();
    segments = segments_.count();
  }
  figures.registered_segments = registrations_.registrations();
  figures.pending_segments = registrations_.pending(segments);
  figures.failed_allocations = failed_allocations_.load(std::memory_order_relaxed);
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
  for (const SegmentToRegister& segment : segments) table_.RemoveRange(segment.address);
}

template class PoolBase<engine::CachingEngine>;
template class PoolBase<engine::SymmetricEngine>;

}  // namespace commpool
