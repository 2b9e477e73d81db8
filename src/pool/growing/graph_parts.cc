#include "src/pool/growing/graph_parts.h"

#include <utility>

#include "src/base/try.h"

namespace commpool::internal {

Result<std::optional<CUdeviceptr>> GraphParts::Serve(uint64_t bytes, StreamKey stream, engine::Part part) {
  engine::Served served;
  {
    MutexLock lock(blocks_.mutex());
    blocks_.NoteHolding();
    Result<engine::Outcome> outcome = engine().Allocate(bytes, stream, engine::Reuse::kSameStream, part);
    if (!outcome.ok()) return basis_.Named(outcome.status());
    if (std::holds_alternative<engine::Grow>(*outcome)) return std::optional<CUdeviceptr>();
    served = std::move(std::get<engine::Served>(*outcome));
  }
  // No cache may keep a graph's block.
  CUdeviceptr address = COMMPOOL_TRY(blocks_.HandOut(served, bytes, stream, Caching::kNo));
  return std::optional<CUdeviceptr>(address);
}

Result<engine::Freed> GraphParts::Free(CUdeviceptr address) {
  if (engine().PartOf(address) == engine::kCommonPart) return engine().Free(address);
  Result<engine::Freed> freed = engine().FreeInPart(address);
  if (freed.ok()) freed->streams_to_fence.clear();
  return freed;
}

bool GraphParts::Has(CUdeviceptr address) const {
  if (!captures_.any_known()) return false;  // no graph has any
  MutexLock lock(blocks_.mutex());
  return engine().PartOf(address) != engine::kCommonPart;
}

void GraphParts::Collect() {
  for (const engine::Part part : captures_.TakeGone()) {
    MutexLock lock(blocks_.mutex());
    engine().ReleasePart(part);
  }
}

}  // namespace commpool::internal
