// The router's part that answers for a device: statistics, limits, what is given back.
#include <algorithm>

#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"
#include "src/adapters/torch/statistics.h"

namespace commpool::torch_adapter {

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

c10::CachingDeviceAllocator::DeviceStats Router::getDeviceStats(c10::DeviceIndex device) {
  c10::CachingDeviceAllocator::DeviceStats stats = Native()->getDeviceStats(device);
  AddPoolStatistics(device, &stats);
  return stats;
}

void Router::resetAccumulatedStats(c10::DeviceIndex device) {
  Native()->resetAccumulatedStats(device);
  Pools().ResetTotals(device);
}

void Router::resetPeakStats(c10::DeviceIndex device) {
  Native()->resetPeakStats(device);
  ResetPoolPeaks(device);
}

}  // namespace commpool::torch_adapter
