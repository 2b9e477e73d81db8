// The router's part that answers for a device: statistics, limits, what is given back.
#include <algorithm>

#include "src/adapters/torch/earlier.h"
#include "src/adapters/torch/known_pools.h"
#include "src/adapters/torch/router.h"
#include "src/adapters/torch/statistics.h"

namespace commpool::torch_adapter {
namespace {

constexpr MempoolId_t kWholeCache = {0, 0};

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
  if (const commpool_pool named = Pools().Named(id); named != 0) {
    for (int device = 0; device < KnownPools::kDevices; ++device)
      for (const KnownPool& known : Pools().OfDevice(device))
        if (known.pool == named) TrimKnownPool(known);
    return;
  }
  Native()->emptyCache(id);
  if (id != kWholeCache) return;
  for (int device = 0; device < KnownPools::kDevices; ++device) TrimKnownPools(device);
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

#if COMMPOOL_TORCH_AT_LEAST(10)
std::vector<torch_names::StreamSegmentSize> Router::getExpandableSegmentSizes(c10::DeviceIndex device) {
  return Native()->getExpandableSegmentSizes(device);
}
#endif

}  // namespace commpool::torch_adapter
