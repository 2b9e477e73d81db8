#include "src/pool/growing_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/driver/graph_handles.h"
#include "src/pool/memory_search.h"

namespace commpool::internal {

namespace {

constexpr int kMostRequests = 8;  // to the other allocators of the process, for one allocation

}  // namespace

template <typename Engine>
Result<std::optional<CUdeviceptr>> GrowingPool<Engine>::TryServe(uint64_t bytes, StreamKey stream,
                                                                 engine::Reuse reuse) {
  engine::Served served;
  {
    MutexLock lock(this->mutex_);
    Result<engine::Outcome> outcome = this->engine_.Allocate(bytes, stream, reuse);
    if (!outcome.ok()) return Status(outcome.status().code(), this->Title() + ": " + outcome.status().message());
    if (std::holds_alternative<engine::Grow>(*outcome)) return std::optional<CUdeviceptr>();
    served = std::move(std::get<engine::Served>(*outcome));
  }
  Result<CUdeviceptr> address = this->FinishServing(served, bytes, stream);
  if (!address.ok()) return address.status();
  return std::optional<CUdeviceptr>(*address);
}

template <typename Engine>
Result<std::optional<CUdeviceptr>> GrowingPool<Engine>::ServeFromAnyStream(uint64_t bytes, StreamKey stream) {
  MutexLock growth(this->growth_);  // the streams waited for are not released meanwhile (ForgetStream)
  return TryServe(bytes, stream, engine::Reuse::kAnyStream);
}

template <typename Engine>
bool GrowingPool<Engine>::DrainCaches() {
  const std::vector<engine::CachedBlock> drained = this->shared_.caches->Drain(this->handle());
  this->TakeBack(drained);
  return !drained.empty();
}

template <typename Engine>
Result<CUdeviceptr> GrowingPool<Engine>::Allocate(uint64_t bytes, StreamKey stream) {
  Status open = this->CheckOpen();
  if (!open.ok()) return this->Failed(open);
  CollectGraphs();
  std::optional<RelaxedCapture> relaxed;
  if (captures_.any_open()) {
    Result<std::optional<CUdeviceptr>> captured = ServeCapture(bytes, stream);
    if (!captured.ok()) return this->Failed(captured.status());
    if (captured->has_value()) return **captured;
    relaxed.emplace(this->driver_);  // what this thread asks the driver for is no part of anybody's capture
  }
  this->PollFences();
  KeepToThreshold();
  Result<std::optional<CUdeviceptr>> served = TryServe(bytes, stream, engine::Reuse::kSameStream);
  if (!served.ok()) return this->Failed(served.status());
  if (!served->has_value() && DrainCaches()) {
    served = TryServe(bytes, stream, engine::Reuse::kSameStream);
    if (!served.ok()) return this->Failed(served.status());
  }
  if (served->has_value()) return **served;

  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kUsual);
  if (grown.ok()) return grown;
  if (grown.status().code() != StatusCode::kOutOfMemory) return this->Failed(grown.status());
  Result<CUdeviceptr> found = Search(bytes, stream, grown.status());
  if (!found.ok()) return this->Failed(found.status());
  return found;
}

template <typename Engine>
Result<CUdeviceptr> GrowingPool<Engine>::ServeAfterGrowth(uint64_t bytes, StreamKey stream, Effort effort) {
  // Other threads may take what one growth made, so it can need more than one; each makes room for somebody.
  for (;;) {
    Status status = Grow(bytes, stream, effort);
    if (!status.ok()) return status;
    Result<std::optional<CUdeviceptr>> served = TryServe(bytes, stream, engine::Reuse::kSameStream);
    if (!served.ok()) return served.status();
    if (served->has_value()) return **served;
    // What came may have merged with neighbours that another stream used: growing again would not help.
    served = ServeFromAnyStream(bytes, stream);
    if (!served.ok()) return served.status();
    if (served->has_value()) return **served;
  }
}

template <typename Engine>
Result<CUdeviceptr> GrowingPool<Engine>::Search(uint64_t bytes, StreamKey stream, const Status& growth_failure) {
  // Memory that other streams used last: a device-side wait is cheaper than a host one.
  Result<std::optional<CUdeviceptr>> served = ServeFromAnyStream(bytes, stream);
  if (!served.ok()) return served.status();
  if (served->has_value()) return **served;

  // After a host wait free neighbours merge, whichever streams used them.
  this->CountHostWait();
  Status status = this->WaitForDevice();
  if (!status.ok()) return status;
  served = ServeFromAnyStream(bytes, stream);
  if (!served.ok()) return served.status();
  if (served->has_value()) return **served;

  // Free segments that are too small for the request: of this pool, then of the others on the device.
  Status failure = growth_failure;
  if (bytes <= this->configuration_.limit_bytes) {
    if (!MovesPages()) ReleaseUnused();
    // Where the pool's own limit is in the way, nobody else's memory helps.
    const bool room = FitsOwnLimit(bytes);
    if (room) ReleaseUnusedMemory(this->shared_.table, this->device(), this);
    Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
    if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
    if (MovesPages() && ReleaseUnused() > 0) {
      grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
      if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
    }
    failure = grown.status();
    // Other allocators of the process, as long as they give: a few times, for what they say need not be so.
    for (int time = 0; room && time<kMostRequests&& this->shared_.holders.Release(this->device(), bytes)> 0; ++time) {
      grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
      if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
    }
  }
  return Status(StatusCode::kOutOfMemory, "no memory for " + FormatBytes(bytes) + " in " + failure.message() +
                                              DescribeHolders(this->shared_, this->device()));
}

template <typename Engine>
Status GrowingPool<Engine>::BeginCapture(CaptureHandle capture, CUstream stream) {
  Status open = this->CheckOpen();
  if (!open.ok()) return open;
  ContextGuard guard(this->driver_, this->device_->context());
  Status status = captures_.Begin(capture, stream);
  if (!status.ok()) return Status(status.code(), this->Title() + ": " + status.message());
  this->device_->BeginCapture();
  this->TakeBack(this->shared_.caches->Close(this->handle(), CacheRegistry::Reopen::kAtNextUse));
  if (this->shared_.annotations.capture_announced != nullptr) this->shared_.annotations.capture_announced(stream, 1);
  return Status();
}

template <typename Engine>
void GrowingPool<Engine>::EndCapture(CaptureHandle capture) {
  const CUstream stream = captures_.End(capture);
  if (stream == nullptr) return;
  this->device_->EndCapture();
  if (this->shared_.annotations.capture_announced != nullptr) this->shared_.annotations.capture_announced(stream, 0);
}

template <typename Engine>
Result<std::optional<CUdeviceptr>> GrowingPool<Engine>::ServeCapture(uint64_t bytes, StreamKey stream) {
  if (!IsReachable(stream)) return std::optional<CUdeviceptr>();
  ContextGuard guard(this->driver_, this->device_->context());
  Result<engine::Part> part = captures_.PartOf(StreamOfKey(stream));
  if (!part.ok()) return Status(part.status().code(), this->Title() + ": " + part.status().message());
  if (*part == engine::kCommonPart) return std::optional<CUdeviceptr>();
  engine::Served served;
  {
    MutexLock lock(this->mutex_);
    Result<engine::Outcome> outcome = this->engine_.Allocate(bytes, stream, engine::Reuse::kSameStream, *part);
    if (!outcome.ok()) return Status(outcome.status().code(), this->Title() + ": " + outcome.status().message());
    if (std::holds_alternative<engine::Grow>(*outcome)) {
      const engine::Counters counters = this->engine_.counters();
      return Status(StatusCode::kOutOfMemory,
                    this->Title() + ": no idle memory for " + FormatBytes(bytes) +
                        " in a capture, where nothing grows: " + FormatBytes(counters.free_bytes) +
                        " are free, in use by streams or too small. Synchronise and "
                        "reserve() before the capture");
    }
    served = std::move(std::get<engine::Served>(*outcome));
  }
  Result<CUdeviceptr> address = this->FinishServing(served, bytes, stream);
  if (!address.ok()) return address.status();
  return std::optional<CUdeviceptr>(*address);
}

template <typename Engine>
Result<engine::Freed> GrowingPool<Engine>::FreeInEngine(CUdeviceptr address) {
  if (this->engine_.PartOf(address) == engine::kCommonPart) return this->engine_.Free(address);
  Result<engine::Freed> freed = this->engine_.FreeInPart(address);
  if (freed.ok()) freed->streams_to_fence.clear();  // nothing may be recorded for a graph: its part stays its own
  return freed;
}

template <typename Engine>
bool GrowingPool<Engine>::IsToldOfFrees(CUdeviceptr address) const {
  MutexLock lock(this->mutex_);
  return this->engine_.PartOf(address) == engine::kCommonPart;
}

template <typename Engine>
void GrowingPool<Engine>::CollectGraphs() {
  for (const engine::Part part : captures_.TakeGone()) {
    MutexLock lock(this->mutex_);
    this->engine_.ReleasePart(part);
  }
}

template <typename Engine>
Caching GrowingPool<Engine>::CachingNow() const {
  // While a capture is open no cache may serve its streams, which may be any.
  const bool caching = this->configuration_.release_threshold_bytes == UINT64_MAX && !captures_.any_open();
  return caching ? Caching::kYes : Caching::kNo;
}

template <typename Engine>
Status GrowingPool<Engine>::PollStreams() {
  this->PollFences();
  if (this->device_->capturing()) return Status();
  ContextGuard guard(this->driver_, this->device_->context());
  std::vector<StreamKey> streams;
  std::vector<Checkpoint> checkpoints;
  engine::Moment now = 0;
  {
    MutexLock lock(this->mutex_);
    checkpoints = std::exchange(checkpoints_, {});
    now = this->engine_.Now();
    streams = this->engine_.StreamsInUse();
  }
  for (const StreamKey stream : streams) {
    if (!IsReachable(stream)) continue;  // only its own thread can record on it
    // A stream that stands still says so at once; one that goes on needs an event behind what it has.
    Result<bool> idle = this->device_->capturing() ? Result<bool>(false) : this->device_->fences().IsIdle(stream);
    if (!idle.ok()) return idle.status();
    if (*idle) {
      MutexLock lock(this->mutex_);
      this->engine_.StreamIdle(stream, now);
      continue;
    }
    const bool recorded = std::any_of(checkpoints.begin(), checkpoints.end(), [&](const Checkpoint& checkpoint) {
      return checkpoint.stream == stream && checkpoint.moment == now;
    });
    if (recorded) continue;
    Result<FenceId> fence = this->device_->fences().Record(stream);
    if (!fence.ok()) return fence.status();
    checkpoints.push_back({stream, now, *fence});
  }
  for (const Checkpoint& checkpoint : checkpoints) {
    Result<bool> passed = this->device_->fences().Passed(checkpoint.fence);
    if (!passed.ok()) return passed.status();
    if (*passed) this->device_->fences().Retire(checkpoint.fence);
    MutexLock lock(this->mutex_);
    if (*passed) {
      this->engine_.StreamIdle(checkpoint.stream, checkpoint.moment);
    } else {
      checkpoints_.push_back(checkpoint);
    }
  }
  return Status();
}

template <typename Engine>
Status GrowingPool<Engine>::PollFor(uint64_t bytes) {
  // Making memory takes 50 us and 2.5 us a MiB on an H200 (tools/bench/results): waiting longer would be dearer.
  const auto limit = std::chrono::microseconds(50 + bytes * 5 / 2 / kMiB);
  const auto begin = std::chrono::steady_clock::now();
  for (int polls = 0;; ++polls) {
    Status status = PollStreams();
    if (!status.ok()) return status;
    {
      MutexLock lock(this->mutex_);
      if (this->engine_.StreamsInUse().empty()) return Status();
    }
    if (polls == 1) this->CountHostWait();
    if (std::chrono::steady_clock::now() - begin > limit) return Status();
  }
}

template <typename Engine>
void GrowingPool<Engine>::ForgetStream(StreamKey stream) {
  // Whoever is about to record on the stream does so first: afterwards its handle may be gone.
  MutexLock growth(this->growth_);
  std::vector<Checkpoint> over;
  {
    MutexLock lock(this->mutex_);
    for (const Checkpoint& checkpoint : checkpoints_) {
      if (checkpoint.stream == stream) over.push_back(checkpoint);
    }
    std::erase_if(checkpoints_, [&](const Checkpoint& checkpoint) { return checkpoint.stream == stream; });
  }
  for (const Checkpoint& checkpoint : over) this->device_->fences().Retire(checkpoint.fence);
  PoolBase<Engine>::ForgetStream(stream);
}

template <typename Engine>
Status GrowingPool<Engine>::TakeRoom(uint64_t bytes) {
  if (!FitsOwnLimit(bytes)) {
    return Status(StatusCode::kOutOfMemory, this->Title() + ": " + FormatBytes(bytes) +
                                                " more would exceed its limit of " +
                                                FormatBytes(this->configuration_.limit_bytes) + " (" +
                                                FormatBytes(this->ReservedBytes()) + " are reserved)");
  }
  return this->TakeDeviceRoom(bytes);
}

template <typename Engine>
bool GrowingPool<Engine>::FitsOwnLimit(uint64_t bytes) const {
  const std::optional<uint64_t> after = CheckedAdd(this->ReservedBytes(), bytes);
  return after && *after <= this->configuration_.limit_bytes;
}

template <typename Engine>
Status GrowingPool<Engine>::Reserve(uint64_t bytes) {
  Status open = this->CheckOpen();
  if (!open.ok()) return open;
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, this->Title() + ": reserve of 0 bytes");
  DrainCaches();
  // What a block of the calling thread's legacy stream could be served with counts as there.
  const StreamKey stream = KeyOfStream(nullptr);
  Status status = Grow(bytes, stream, Effort::kReserve);
  if (status.code() != StatusCode::kOutOfMemory) return status;
  ReleaseUnusedMemory(this->shared_.table, this->device(), this);
  this->shared_.holders.Release(this->device(), bytes);
  return Grow(bytes, stream, Effort::kPressure);
}

template <typename Engine>
void GrowingPool<Engine>::KeepToThreshold() {
  const uint64_t threshold = this->configuration_.release_threshold_bytes;
  if (threshold == UINT64_MAX || this->ReservedBytes() <= threshold || this->device_->capturing()) return;
  Result<uint64_t> released = GiveBack(threshold, Wait::kNo);
  if (!released.ok()) Log(LogLevel::kWarning, this->Title() + ": " + released.status().message());
}

template <typename Engine>
Result<uint64_t> GrowingPool<Engine>::Reclaim() {
  const uint64_t before = this->ReservedBytes();
  this->PollFences();
  KeepToThreshold();
  return before - std::min(before, this->ReservedBytes());
}

template <typename Engine>
Result<uint64_t> GrowingPool<Engine>::Trim(uint64_t keep_bytes) {
  CollectGraphs();
  DrainCaches();
  return GiveBack(keep_bytes, Wait::kYes);
}

template <typename Engine>
uint64_t GrowingPool<Engine>::ReleaseUnused() {
  CollectGraphs();
  DrainCaches();
  Result<uint64_t> released = GiveBack(0, Wait::kYes);
  if (!released.ok()) Log(LogLevel::kWarning, this->Title() + ": " + released.status().message());
  return released.ok() ? *released : 0;
}

template <typename Engine>
void GrowingPool<Engine>::Retire() {
  this->open_ = false;
  this->retired_ = true;
  this->TakeBack(this->shared_.caches->Close(this->handle(), CacheRegistry::Reopen::kNever));
  AfterFree();
}

template <typename Engine>
void GrowingPool<Engine>::AfterFree() {
  if (this->device_->health().broken()) return;  // quarantined: the memory goes with the process
  if (this->retired_.load(std::memory_order_acquire)) {
    ReleaseUnused();
  } else {
    KeepToThreshold();
  }
}

template class GrowingPool<engine::CachingEngine>;
template class GrowingPool<engine::ExpandableEngine>;

}  // namespace commpool::internal
