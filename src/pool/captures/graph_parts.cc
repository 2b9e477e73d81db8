#include "src/pool/captures/graph_parts.h"

#include <utility>

#include "src/base/bytes.h"

namespace commpool::internal {

Result<std::optional<CUdeviceptr>> GraphParts::Serve(uint64_t bytes, StreamKey stream) {
  if (!IsReachable(stream)) return std::optional<CUdeviceptr>();
  const ContextGuard current = basis_.MakeCurrent();
  Result<engine::Part> part = captures_.PartOf(StreamOfKey(stream));
  if (!part.ok()) return basis_.Named(part.status());
  if (*part == engine::kCommonPart) return std::optional<CUdeviceptr>();
  engine::Served served;
  {
    MutexLock lock(blocks_.mutex());
    Result<engine::Outcome> outcome = engine_->Allocate(bytes, stream, engine::Reuse::kSameStream, *part);
    if (!outcome.ok()) return basis_.Named(outcome.status());
    if (std::holds_alternative<engine::Grow>(*outcome)) {
      return Status(StatusCode::kOutOfMemory,
                    basis_.title + ": no idle memory for " + FormatBytes(bytes) +
                        " in a capture, where nothing grows: " + FormatBytes(engine_->counters().free_bytes) +
                        " are free, in use by streams or too small. Synchronise and reserve() before the capture");
    }
    served = std::move(std::get<engine::Served>(*outcome));
  }
  // No cache may keep a graph's block.
  Result<CUdeviceptr> address = blocks_.HandOut(served, bytes, stream, Caching::kNo);
  if (!address.ok()) return address.status();
  return std::optional<CUdeviceptr>(*address);
}

Result<engine::Freed> GraphParts::Free(CUdeviceptr address) {
  if (engine_->PartOf(address) == engine::kCommonPart) return engine_->Free(address);
  Result<engine::Freed> freed = engine_->FreeInPart(address);
  if (freed.ok()) freed->streams_to_fence.clear();
  return freed;
}

bool GraphParts::Has(CUdeviceptr address) const {
  if (!captures_.any_known()) return false;  // no graph has any
  MutexLock lock(blocks_.mutex());
  return engine_->PartOf(address) != engine::kCommonPart;
}

void GraphParts::Collect() {
  for (const engine::Part part : captures_.TakeGone()) {
    MutexLock lock(blocks_.mutex());
    engine_->ReleasePart(part);
  }
}

}  // namespace commpool::internal
