// The router's part that answers for a device: statistics, limits, what is given back.
#include <algorithm>

#include "src/adapters/torch/commpool_calls.h"
#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"

namespace commpool::torch_adapter {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

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

void AddPool(const KnownPool& known, const commpool_statistics& now, DeviceStats* stats) {
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
  const MempoolId_t id = Pools().ShownId(known);
  if (id != kEverything) Add(&stats->reserved_bytes_by_private_pools[id], now.reserved_bytes, base.reserved_bytes);
#endif
}

}  // namespace

// PyTorch's pools and ours are held to the fraction each for itself.
void Router::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  Native()->setMemoryFraction(fraction, device);
  LimitPools(device, fraction);
}

void Router::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  Native()->cacheInfo(device, largest);
  commpool_statistics now;
  if (const commpool_pool whole = Pools().Default(device); whole != 0 && ReadStatistics(whole, &now))
    *largest = std::max<size_t>(*largest, now.largest_free_block_bytes);
}

void Router::emptyCache(MempoolId_t id) {
  const std::vector<KnownPool> named = Pools().Named(id);
  if (id == kEverything || named.empty()) Native()->emptyCache(id);
  for (const KnownPool& known : named) TrimKnownPool(known);
}

// Peaks are summed: together they are an upper bound, exact where one of the two allocators serves everything.
DeviceStats Router::getDeviceStats(c10::DeviceIndex device) {
  DeviceStats stats = Native()->getDeviceStats(device);
  commpool_statistics now;
  for (const KnownPool& known : Pools().OfDevice(device))
    if (ReadStatistics(known.pool, &now)) AddPool(known, now, &stats);
  return stats;
}

void Router::resetAccumulatedStats(c10::DeviceIndex device) {
  Native()->resetAccumulatedStats(device);
  Pools().ResetTotals(device);
}

void Router::resetPeakStats(c10::DeviceIndex device) {
  Native()->resetPeakStats(device);
  for (const KnownPool& known : Pools().OfDevice(device)) Commpool().pool_reset_peaks(known.pool);
}

}  // namespace commpool::torch_adapter
