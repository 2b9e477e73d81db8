// How large segments are: a location's granularity, and requests rounded up to it. Any thread.
#ifndef COMMPOOL_SRC_BACKING_SEGMENT_SIZE_H_
#define COMMPOOL_SRC_BACKING_SEGMENT_SIZE_H_

#include <cstdint>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/base/bytes.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// Of memory whose granularity cannot be asked: the page in which cudaMalloc takes memory from the device.
inline constexpr uint64_t kDevicePageBytes = 2 * kMiB;

CUmemLocation LocationOf(const Placement& placement);

// Of cuMemCreate memory: the larger of what the driver recommends and the least that multicast binds (NVLS uses no
// less, and falls back without a word). Asks only; makes no multicast object.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement);

// kInvalidArgument for zero and for sizes that overflow.
Result<uint64_t> RoundToGranularity(uint64_t bytes, uint64_t granularity);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_SEGMENT_SIZE_H_
