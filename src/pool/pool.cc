#include "src/pool/pool.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace commpool::internal {

void ReleaseDestroyedPools(const PoolTable& pools, AnnouncedCaptures& captures) {
  if (captures.any()) return;
  const bool postponed = captures.TakePostponed();
  if (!postponed && pools.removed() == 0) return;
  for (const std::shared_ptr<Pool>& pool : pools.All()) {
    if (!pool->has_handle() && (postponed || pool->HasEndedGraphs())) pool->ReleaseUnused();
  }
}

Pool::Pool(std::unique_ptr<PoolParts> parts, std::unique_ptr<PoolMode> mode)
    : parts_(std::move(parts)), mode_(std::move(mode)) {}

std::shared_ptr<Pool> Pool::Make(std::unique_ptr<PoolParts> parts, std::unique_ptr<PoolMode> mode) {
  auto pool = std::make_shared<Pool>(std::move(parts), std::move(mode));
  pool->parts_->basis.owner = pool;
  return pool;
}

Result<BlockDescription> Pool::FindBlock(CUdeviceptr address) const {
  Result<BlockDescription> block = parts_->blocks.Find(address);
  if (block.ok() && !has_handle()) block->pool = 0;
  return block;
}

Result<CUdeviceptr> Pool::Allocate(uint64_t bytes, StreamKey stream) {
  const Status open = parts_->CheckOpen();
  Result<CUdeviceptr> address = open.ok() ? AllocateInAttempts(bytes, stream) : Result<CUdeviceptr>(open);
  if (!address.ok()) PoolEvents::Count(parts_->events.failed_allocations);
  return address;
}

Result<CUdeviceptr> Pool::AllocateInAttempts(uint64_t bytes, StreamKey stream) {
  constexpr auto kLongestPause = std::chrono::milliseconds(1000);
  std::chrono::milliseconds pause(10);
  for (uint32_t attempt = 1;; ++attempt) {
    Result<CUdeviceptr> address = mode_->Allocate(bytes, stream);
    if (address.status().code() != StatusCode::kOutOfMemory || attempt == configuration().attempts) return address;
    // Memory of other processes, and what other threads still use, comes back without a word.
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

void Pool::TakeBack(const ReservedVector<engine::CachedBlock>& blocks) {
  if (blocks.empty()) return;
  parts_->blocks.TakeBack(blocks);
  mode_->AfterFree();
}

Status Pool::BeginCapture(CaptureHandle capture, CUstream stream, int stream_device) {
  Status status = parts_->CheckOpen();
  if (status.ok()) status = mode_->CheckCapture();
  if (!status.ok()) return status;
  const PoolBasis& basis = parts_->basis;
  const ContextGuard current = basis.MakeCurrent();
  const GraphCaptures::Origin origin{stream, {device(), stream_device}};
  status = parts_->captures.Begin(capture, origin);
  if (!status.ok()) return basis.Named(status);
  basis.device->captures().Begin(origin.devices);
  mode_->AfterCaptureBegan();
  basis.runtime.observers.Tell(&MemoryObserver::CaptureBegun, stream);
  return Status();
}

void Pool::EndCapture(CaptureHandle capture) {
  const std::optional<GraphCaptures::Origin> origin = parts_->captures.End(capture);
  if (!origin) return;
  parts_->basis.device->captures().End(origin->devices);
  parts_->basis.runtime.observers.Tell(&MemoryObserver::CaptureEnded, origin->stream);
}

Result<uint64_t> Pool::Trim(uint64_t keep_bytes) {
  ReleaseDestroyedPools(parts_->basis.runtime.pools, parts_->basis.device->captures());
  return mode_->Trim(keep_bytes);
}

Status Pool::CheckMayEnd() const {
  if (parts_->basis.configuration.keeper == Keeper::kProgram) return Status();
  return Status(StatusCode::kInvalidArgument,
                "the default pool of device " + std::to_string(device()) +
                    " is the library's, which neither closes nor destroys it: trim() gives its free "
                    "memory back");
}

Status Pool::Close() {
  const Status may_end = CheckMayEnd();
  if (!may_end.ok()) return may_end;
  ReleaseDestroyedPools(parts_->basis.runtime.pools, parts_->basis.device->captures());
  Status status = mode_->Close();
  if (status.ok()) DropKept();
  return status;
}

Status Pool::Grant(const std::vector<int>& peers) {
  Status awake = parts_->CheckAwake();
  return awake.ok() ? parts_->segments.Grant(peers) : awake;
}

Status Pool::Revoke(const std::vector<int>& peers) {
  Status awake = parts_->CheckAwake();
  return awake.ok() ? parts_->segments.Revoke(peers) : awake;
}

void Pool::Destroy() {
  parts_->life.Destroy();
  DropKept();
  mode_->AfterDestroy();
}

void Pool::DropKept() {
  if (parts_->kept.bytes() == 0) return;
  MutexLock growth(parts_->segments.growth());
  parts_->kept.Drop(parts_->basis);
}

void Pool::Abandon() {
  mode_->BeforeAbandon();
  parts_->life.Abandon();
  parts_->segments.Abandon();
  parts_->kept.Abandon();
}

PoolStatistics Pool::Statistics() const {
  const BlockStatistics blocks = parts_->blocks.Statistics();
  PoolStatistics statistics;
  statistics.counters = blocks.counters;
  statistics.cached_bytes = blocks.cached_bytes;
  statistics.registered_segments = parts_->registrations.registrations();
  statistics.pending_segments = parts_->registrations.pending(parts_->segments.count());
  statistics.held_bytes = parts_->registrations.held_bytes();
  statistics.failed_allocations = parts_->events.failed_allocations.load(std::memory_order_relaxed);
  statistics.moved_bytes = parts_->events.moved_bytes.load(std::memory_order_relaxed);
  statistics.asleep_bytes = parts_->segments.asleep_bytes();
  statistics.kept_bytes = parts_->kept.bytes();
  statistics.host_waits = parts_->events.host_waits.load(std::memory_order_relaxed);
  return statistics;
}

}  // namespace commpool::internal
