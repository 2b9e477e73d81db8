// What our pools add to PyTorch's statistics of a device.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_STATISTICS_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_STATISTICS_H_

#include <c10/core/CachingDeviceAllocator.h>

namespace commpool::torch_adapter {

// Peaks are summed: together they are an upper bound, exact where one of the two allocators serves everything.
void AddPoolStatistics(int device, c10::CachingDeviceAllocator::DeviceStats* stats);

void ResetPoolPeaks(int device);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_STATISTICS_H_
