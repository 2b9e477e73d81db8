// The router's part that answers for a device and its pools: statistics, live blocks, and what it gives back.
#include <algorithm>
#include <iterator>

#include "src/torch/router.h"

namespace commpool::torch_adapter {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }

// Returns what is left of a counter. A sum of two peaks is at most the sum of both.
commpool_counter Rest(const commpool_counter& all, const commpool_counter& large) {
  const auto less = [](uint64_t one, uint64_t other) { return one - std::min(one, other); };
  const uint64_t current = less(all.current, large.current);
  return {current, std::max(current, less(all.peak, large.peak)), less(all.total, large.total)};
}

// What came and went between two counters.
struct Change {
  int64_t allocated = 0;
  int64_t freed = 0;
};

Change Between(const commpool_counter& base, const commpool_counter& now) {
  const int64_t freed = Signed(now.total - now.current) - Signed(base.total - base.current);
  return {Signed(now.total - base.total), std::max<int64_t>(freed, 0)};  // a graph's memory waits and was no block
}

void AddTo(Stat* stat, const commpool_counter& now, const Change& change) {
  stat->current += Signed(now.current);
  stat->peak += Signed(now.peak);
  stat->allocated += change.allocated;
  stat->freed += change.freed;
}

// A pool's statistics now, and at the last reset.
struct NowAndBase {
  const commpool_statistics& now;
  const commpool_statistics& base;
};

// Reads one of them, for all blocks and for large ones. A segment may become large and a block may be another caller's,
// so what is known of the large ones is kept within what came and went in all.
template <typename Get>
void Add(StatArray* stats, const NowAndBase& all, const NowAndBase& large, const Get& get) {
  const Change of_all = Between(get(all.base), get(all.now));
  Change of_large = Between(get(large.base), get(large.now));
  of_large.allocated = std::max<int64_t>(std::min(of_large.allocated, of_all.allocated), 0);
  of_large.freed = std::max<int64_t>(std::min(of_large.freed, of_all.freed), 0);
  AddTo(&(*stats)[static_cast<size_t>(StatType::AGGREGATE)], get(all.now), of_all);
  AddTo(&(*stats)[static_cast<size_t>(StatType::LARGE_POOL)], get(large.now), of_large);
  AddTo(&(*stats)[static_cast<size_t>(StatType::SMALL_POOL)], Rest(get(all.now), get(large.now)),
        {of_all.allocated - of_large.allocated, of_all.freed - of_large.freed});
}

// What waits for a stream is no new block, so the total stays.
commpool_counter Plus(const commpool_counter& counter, uint64_t pending) {
  return {counter.current + pending, counter.peak + pending, counter.total};
}

void AddPool(const KnownPool& known, const commpool_statistics& now, DeviceStats* stats) {
  const commpool_statistics& base = known.base_totals;
  const commpool_statistics large_now = known.LargeNow(now);
  const auto add = [&, all = NowAndBase{now, base},
                    large = NowAndBase{large_now, known.whole ? known.base_large : base}](
                       StatArray* to, const auto& get) { Add(to, all, large, get); };
  using Statistics = commpool_statistics;
  add(&stats->allocation, [](const Statistics& of) { return of.allocated_blocks; });
  add(&stats->active, [](const Statistics& of) { return of.allocated_blocks; });
  add(&stats->segment, [](const Statistics& of) { return of.reserved_segments; });
  add(&stats->allocated_bytes, [](const Statistics& of) { return of.allocated_bytes; });
  add(&stats->active_bytes, [](const Statistics& of) { return Plus(of.allocated_bytes, of.pending_bytes); });
  add(&stats->reserved_bytes, [](const Statistics& of) { return of.reserved_bytes; });
  add(&stats->requested_bytes, [](const Statistics& of) { return of.requested_bytes; });
  stats->num_ooms += Signed(now.failed_allocations - base.failed_allocations - known.handed_on);
  stats->num_device_alloc += Signed(now.reserved_segments.total - base.reserved_segments.total);
  stats->num_device_free += Signed(now.reserved_segments.total - now.reserved_segments.current) -
                            Signed(base.reserved_segments.total - base.reserved_segments.current);
#if COMMPOOL_TORCH_AT_LEAST(13)
  const MempoolId_t id = Pools().ShownId(known);
  if (id != kEverything)
    add(&stats->reserved_bytes_by_private_pools[id], [](const Statistics& of) { return of.reserved_bytes; });
#endif
}

}  // namespace

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

// The peaks of both allocators are added. The sum is an upper bound; it is exact if one allocator serves everything.
DeviceStats Router::getDeviceStats(c10::DeviceIndex device) {
  DeviceStats stats = Native()->getDeviceStats(device);
  commpool_statistics now;
  for (const KnownPool& known : Pools().OfDevice(device))
    if (ReadStatistics(known.pool, &now)) AddPool(known, now, &stats);
  return stats;
}

bool Router::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                      const std::unordered_set<void*>& expected) {
  if (!TorchRoutings().IsOurs(id)) {
    // A scope around PyTorch's graph may have put blocks into our pool. They are alive too.
    std::unordered_set<void*> theirs;
    std::copy_if(expected.begin(), expected.end(), std::inserter(theirs, theirs.end()),
                 [](void* address) { return !OurBlock(address); });
    return Native()->checkPoolLiveAllocations(device, id, theirs);
  }
  size_t live = 0;
  for (const KnownPool& known : Pools().Named(id)) {
    for (const commpool_block& block : BlocksOf(known.pool)) {
      if (block.state != COMMPOOL_BLOCK_LIVE) continue;
      if (expected.count(block.pointer) == 0) return false;
      ++live;
    }
  }
  return live == expected.size();
}

}  // namespace commpool::torch_adapter
