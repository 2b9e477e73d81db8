#include "src/adapters/torch/statistics.h"

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/versions.h"

namespace commpool::torch_adapter {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }

void AddTo(Stat* stat, const commpool_counter& now, const commpool_counter& base) {
  stat->current += Signed(now.current);
  stat->peak += Signed(now.peak);
  stat->allocated += Signed(now.total - base.total);
  stat->freed += Signed(now.total - now.current) - Signed(base.total - base.current);
}

// Our pools do not part small from large blocks: all of ours count as large.
void Add(StatArray* stats, const commpool_counter& now, const commpool_counter& base) {
  AddTo(&(*stats)[static_cast<size_t>(StatType::AGGREGATE)], now, base);
  AddTo(&(*stats)[static_cast<size_t>(StatType::LARGE_POOL)], now, base);
}

commpool_counter Plus(commpool_counter counter, uint64_t bytes) {
  counter.current += bytes;
  counter.peak += bytes;
  counter.total += bytes;
  return counter;
}

void AddPool(const KnownPool& known, const commpool_statistics& now, c10::CachingDeviceAllocator::DeviceStats* stats) {
  const commpool_statistics& base = known.base_totals;
  Add(&stats->allocation, now.allocated_blocks, base.allocated_blocks);
  Add(&stats->active, now.allocated_blocks, base.allocated_blocks);
  Add(&stats->segment, now.reserved_segments, base.reserved_segments);
  Add(&stats->allocated_bytes, now.allocated_bytes, base.allocated_bytes);
  Add(&stats->active_bytes, Plus(now.allocated_bytes, now.pending_bytes), base.allocated_bytes);
  Add(&stats->reserved_bytes, now.reserved_bytes, base.reserved_bytes);
  Add(&stats->requested_bytes, now.requested_bytes, base.requested_bytes);
  stats->num_ooms += Signed(now.failed_allocations - base.failed_allocations);
  stats->num_device_alloc += Signed(now.reserved_segments.total - base.reserved_segments.total);
  stats->num_device_free += Signed(now.reserved_segments.total - now.reserved_segments.current) -
                            Signed(base.reserved_segments.total - base.reserved_segments.current);
#if COMMPOOL_TORCH_AT_LEAST(13)
  Add(&stats->reserved_bytes_by_private_pools[known.id], now.reserved_bytes, base.reserved_bytes);
#endif
}

}  // namespace

void AddPoolStatistics(int device, c10::CachingDeviceAllocator::DeviceStats* stats) {
  commpool_statistics now;
  for (const KnownPool& known : Pools().OfDevice(device))
    if (ReadStatistics(known.pool, &now)) AddPool(known, now, stats);
}

void ResetPoolPeaks(int device) {
  for (const KnownPool& known : Pools().OfDevice(device)) Commpool().pool_reset_peaks(known.pool);
}

}  // namespace commpool::torch_adapter
