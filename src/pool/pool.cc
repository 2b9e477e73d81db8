#include "src/pool/pool.h"

#include <utility>

namespace commpool::internal {

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
  Result<CUdeviceptr> address = open.ok() ? mode_->Allocate(bytes, stream) : Result<CUdeviceptr>(open);
  if (!address.ok()) PoolEvents::Count(parts_->events.failed_allocations);
  return address;
}

void Pool::TakeBack(const std::vector<engine::CachedBlock>& blocks) {
  if (blocks.empty()) return;
  parts_->blocks.TakeBack(blocks);
  mode_->AfterFree();
}

Status Pool::BeginCapture(CaptureHandle capture, CUstream stream) {
  Status status = parts_->CheckOpen();
  if (status.ok()) status = mode_->CheckCapture();
  if (!status.ok()) return status;
  const PoolBasis& basis = parts_->basis;
  const ContextGuard current = basis.MakeCurrent();
  status = parts_->captures.Begin(capture, stream);
  if (!status.ok()) return basis.Named(status);
  basis.device->BeginCapture();
  mode_->AfterCaptureBegan();
  basis.runtime.observers.Tell(&MemoryObserver::CaptureBegun, stream);
  return Status();
}

void Pool::EndCapture(CaptureHandle capture) {
  const CUstream stream = parts_->captures.End(capture);
  if (stream == nullptr) return;
  parts_->basis.device->EndCapture();
  parts_->basis.runtime.observers.Tell(&MemoryObserver::CaptureEnded, stream);
}

void Pool::Destroy() {
  parts_->life.Destroy();
  mode_->AfterDestroy();
}

void Pool::Abandon() {
  mode_->BeforeAbandon();
  parts_->life.Abandon();
  parts_->segments.Abandon();
}

PoolStatistics Pool::Statistics() const {
  const BlockStatistics blocks = parts_->blocks.Statistics();
  PoolStatistics statistics;
  statistics.counters = blocks.counters;
  statistics.cached_bytes = blocks.cached_bytes;
  statistics.registered_segments = parts_->registrations.registrations();
  statistics.pending_segments = parts_->registrations.pending(parts_->segments.count());
  statistics.failed_allocations = parts_->events.failed_allocations.load(std::memory_order_relaxed);
  statistics.moved_bytes = parts_->events.moved_bytes.load(std::memory_order_relaxed);
  statistics.host_waits = parts_->events.host_waits.load(std::memory_order_relaxed);
  return statistics;
}

}  // namespace commpool::internal
