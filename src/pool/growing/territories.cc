#include "src/pool/growing/territories.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

// Addresses cost nothing: room for the device's whole memory twice, so that pages find a place in one piece.
uint64_t UsualBytes(const PoolBasis& basis, uint64_t granularity) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const ContextGuard current = basis.MakeCurrent();
  const bool known = basis.driver.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  return RoundUp(2 * std::max<uint64_t>(known ? total_bytes : 0, 64 * kGiB), granularity);
}

}  // namespace

Territories::Territories(const PoolBasis& basis, BlockStore& blocks, SegmentStore& segments)
    : basis_(basis), blocks_(blocks), segments_(segments), usual_bytes_(UsualBytes(basis, segments.granularity())) {}

Territory& Territories::Of(CUdeviceptr address) {
  const auto after = by_address_.upper_bound(address);
  COMMPOOL_CHECK(after != by_address_.begin(), "a page lies in no territory");
  return static_cast<Territory&>(segments_.Get(std::prev(after)->second));
}

Status Territories::Add(engine::Space space, uint64_t least_bytes) {
  const uint64_t bytes = std::max(usual_bytes_, least_bytes);
  std::unique_ptr<Territory> territory = COMMPOOL_TRY(Territory::Reserve(segments_.backing(), bytes));
  const ReservedSet<int>& peers = segments_.peers();
  COMMPOOL_TRY(territory->Grant(ReservedVector<int>(peers.begin(), peers.end())));
  const engine::SegmentRange range{territory->address(), territory->bytes()};
  COMMPOOL_TRY(basis_.runtime.addresses.Add(range.address, range.bytes, basis_.owner.lock()));
  MutexLock lock(blocks_.mutex());
  const engine::SegmentIndex index = blocks_.engine<engine::ExpandableEngine>().AddTerritory(range, space);
  segments_.Put(index, std::move(territory));
  by_address_.emplace(range.address, index);
  return Status();
}

std::unique_ptr<Segment> Territories::TakeIfEmpty(engine::SegmentIndex index) {
  {
    MutexLock lock(blocks_.mutex());
    auto& engine = blocks_.engine<engine::ExpandableEngine>();
    if (!engine.IsEmptyTerritory(index)) return nullptr;
    engine.RemoveTerritory(index);
  }
  return segments_.Take(index);
}

Status Territories::ReleaseEmpty() {
  for (auto territory = by_address_.begin(); territory != by_address_.end();) {
    const std::unique_ptr<Segment> taken = TakeIfEmpty(territory->second);
    if (taken == nullptr) {
      ++territory;
      continue;
    }
    basis_.runtime.addresses.Remove(taken->address());
    territory = by_address_.erase(territory);
    COMMPOOL_TRY(taken->Release());
  }
  return Status();
}

}  // namespace commpool::internal
