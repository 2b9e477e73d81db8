#include "src/pool/fixed_pool.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/pool/memory_search.h"

namespace commpool {

namespace {

engine::CachingEngine MakeEngine(const PoolParts& parts) {
  return engine::CachingEngine({.alignment = parts.configuration.alignment_bytes,
                                .granularity = parts.backing->granularity(),
                                .segment_bytes = parts.configuration.segment_bytes});
}

}  // namespace

FixedPool::FixedPool(PoolParts parts) : PoolBase(std::move(parts), MakeEngine(parts), RegistrationKind::kLocal) {}

Result<std::optional<CUdeviceptr>> FixedPool::TryServe(uint64_t bytes, StreamKey stream, engine::Reuse reuse) {
  engine::Served served;
  {
    MutexLock lock(mutex_);
    Result<engine::Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    if (!outcome.ok()) return Status(outcome.status().code(), Title() + ": " + outcome.status().message());
    if (std::holds_alternative<engine::Grow>(*outcome)) return std::optional<CUdeviceptr>();
    served = std::move(std::get<engine::Served>(*outcome));
  }
  Result<CUdeviceptr> address = FinishServing(served, stream);
  if (!address.ok()) return address.status();
  return std::optional<CUdeviceptr>(*address);
}

Result<CUdeviceptr> FixedPool::Allocate(uint64_t bytes, StreamKey stream) {
  Status open = CheckOpen();
  if (!open.ok()) return Failed(open);
  PollFences();
  Result<std::optional<CUdeviceptr>> served = TryServe(bytes, stream, engine::Reuse::kSameStream);
  if (!served.ok()) return Failed(served.status());
  if (served->has_value()) return **served;

  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream);
  if (grown.ok()) return grown;
  if (grown.status().code() != StatusCode::kOutOfMemory) return Failed(grown.status());
  Result<CUdeviceptr> found = Search(bytes, stream, grown.status());
  if (!found.ok()) return Failed(found.status());
  return found;
}

Result<CUdeviceptr> FixedPool::ServeAfterGrowth(uint64_t bytes, StreamKey stream) {
  // Other threads may take what one growth made, so it can need more than one; each makes room for somebody.
  for (;;) {
    Status status = Grow(bytes, stream);
    if (!status.ok()) return status;
    Result<std::optional<CUdeviceptr>> served = TryServe(bytes, stream, engine::Reuse::kSameStream);
    if (!served.ok()) return served.status();
    if (served->has_value()) return **served;
  }
}

Status FixedPool::CheckLimit(uint64_t segment_bytes) const {
  uint64_t reserved = 0;
  {
    MutexLock lock(mutex_);
    reserved = engine_.counters().reserved_bytes.current;
  }
  const std::optional<uint64_t> after = CheckedAdd(reserved, segment_bytes);
  if (after && *after <= configuration_.limit_bytes) return Status();
  return Status(StatusCode::kOutOfMemory, Title() + ": a segment of " + FormatBytes(segment_bytes) +
                                              " would exceed its limit of " + FormatBytes(configuration_.limit_bytes) +
                                              " (" + FormatBytes(reserved) + " are reserved)");
}

Status FixedPool::Grow(uint64_t bytes, StreamKey stream) {
  MutexLock growth(growth_);
  uint64_t segment_bytes = 0;
  {
    MutexLock lock(mutex_);
    Result<uint64_t> needed = engine_.GrowthFor(bytes, stream, engine::Reuse::kSameStream);
    if (!needed.ok()) return needed.status();
    if (*needed == 0) return Status();  // another thread's growth made room
    segment_bytes = *needed;
  }
  Status status = AddSegment(segment_bytes);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  // Where the usual size does not fit into what is left, the least that holds the request may.
  const std::optional<uint64_t> least =
      CheckedRoundUp(std::max(bytes, configuration_.segment_bytes), segments_.backing().granularity());
  return least && *least < segment_bytes ? AddSegment(*least) : status;
}

Status FixedPool::AddSegment(uint64_t segment_bytes) {
  Status status = CheckLimit(segment_bytes);
  if (!status.ok()) return status;
  ContextGuard guard(driver_, device_->context());
  Result<std::unique_ptr<Segment>> segment = segments_.Make(segment_bytes, peers_);
  if (!segment.ok()) {
    return Status(segment.status().code(), Title() + " cannot grow: " + segment.status().message());
  }
  Adopt(std::move(*segment));
  return Status();
}

Result<CUdeviceptr> FixedPool::Search(uint64_t bytes, StreamKey stream, const Status& growth_failure) {
  // Memory that other streams used last: a device-side wait is cheaper than a host one.
  Result<std::optional<CUdeviceptr>> served = TryServe(bytes, stream, engine::Reuse::kAnyStream);
  if (!served.ok()) return served.status();
  if (served->has_value()) return **served;

  // After a host wait free neighbours merge, whichever streams used them.
  Status status = WaitForDevice();
  if (!status.ok()) return status;
  served = TryServe(bytes, stream, engine::Reuse::kAnyStream);
  if (!served.ok()) return served.status();
  if (served->has_value()) return **served;

  // Free segments that are too small for the request: of this pool, then of the others on the device.
  if (bytes <= configuration_.limit_bytes) {
    uint64_t released = ReleaseUnused();
    // Where the pool's own limit is in the way, nobody else's memory helps.
    if (CheckLimit(bytes).ok()) released += ReleaseUnusedMemory(table_, device(), this);
    Result<CUdeviceptr> grown = released == 0 ? growth_failure : ServeAfterGrowth(bytes, stream);
    if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
  }
  return Status(StatusCode::kOutOfMemory, "no memory for " + FormatBytes(bytes) + " in " + growth_failure.message() +
                                              DescribeHolders(table_, device()));
}

Status FixedPool::Reserve(uint64_t bytes) {
  Status open = CheckOpen();
  if (!open.ok()) return open;
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, Title() + ": reserve of 0 bytes");
  // What a block of the calling thread's legacy stream could be served with counts as there.
  return Grow(bytes, KeyOfStream(nullptr));
}

Result<uint64_t> FixedPool::FreeUnusedSegments(uint64_t keep_bytes) {
  MutexLock growth(growth_);
  std::vector<engine::SegmentIndex> chosen;
  {
    MutexLock lock(mutex_);
    uint64_t reserved = engine_.counters().reserved_bytes.current;
    std::vector<engine::SegmentIndex> free = engine_.WhollyFreeSegments();
    while (reserved > keep_bytes && !free.empty()) {
      const engine::SegmentIndex index = free.back();
      free.pop_back();
      if (registrations_.IsRegistered(index)) continue;
      chosen.push_back(index);
      reserved -= segments_.At(index).bytes;
    }
  }
  if (chosen.empty()) return uint64_t{0};

  // Wholly free now need not mean so after the wait, for other threads allocate meanwhile: only what still is goes.
  Status status = WaitForDevice();
  if (!status.ok()) return status;
  uint64_t released = 0;
  ContextGuard guard(driver_, device_->context());
  for (const engine::SegmentIndex index : chosen) {
    std::unique_ptr<Segment> segment = TakeIfIdle(index);
    if (segment == nullptr) continue;
    released += segment->bytes();
    status = segment->Free();
    if (!status.ok()) return status;
  }
  return released;
}

Result<uint64_t> FixedPool::Trim(uint64_t keep_bytes) { return FreeUnusedSegments(keep_bytes); }

uint64_t FixedPool::ReleaseUnused() {
  Result<uint64_t> released = FreeUnusedSegments(0);
  if (!released.ok()) Log(LogLevel::kWarning, Title() + ": " + released.status().message());
  return released.ok() ? *released : 0;
}

Status FixedPool::Close() {
  MutexLock collective(collective_);
  open_ = false;
  if (device_->health().broken()) return device_->health().first_error();
  Status status = WaitForDevice();
  if (!status.ok()) return status;
  status = registrations_.RemoveAll();
  if (!status.ok()) return status;
  return FreeUnusedSegments(0).status();
}

void FixedPool::Retire() {
  open_ = false;
  retired_ = true;
  AfterFree();
}

void FixedPool::AfterFree() {
  if (device_->health().broken()) return;  // quarantined: the memory goes with the process
  ReleaseUnused();
}

Status FixedPool::RegisterWith(ncclComm_t handle) {
  MutexLock collective(collective_);
  Status open = CheckOpen();
  if (!open.ok()) return open;
  const Capability capability = segments_.backing().CanRegisterLocal();
  if (!capability.available) return Status(StatusCode::kNotSupported, Title() + ": " + capability.reason);
  Result<Communicator> communicator = DescribeCommunicator(driver_, handle);
  if (!communicator.ok()) return communicator.status();
  if (communicator->device != device()) {
    return Status(StatusCode::kInvalidArgument, Title() + " cannot be registered with a communicator of device " +
                                                    std::to_string(communicator->device));
  }
  MutexLock growth(growth_);
  return registrations_.Add(*communicator, Segments());
}

Result<uint64_t> FixedPool::RegisterPending() {
  MutexLock collective(collective_);
  Status open = CheckOpen();
  if (!open.ok()) return open;
  MutexLock growth(growth_);
  return registrations_.RegisterPending(Segments());
}

Status FixedPool::Deregister(ncclComm_t communicator) {
  MutexLock collective(collective_);
  if (!registrations_.Has(communicator)) return Status();
  Status status = device_->Quiesce(configuration_.deadline_ms);
  if (!status.ok()) return status;
  return registrations_.Remove(communicator);
}

Status FixedPool::AbandonCommunicator(ncclComm_t communicator) {
  registrations_.Abandon(communicator);
  return Status();
}

}  // namespace commpool
