// Where memory lies, what can be done there, and which devices reach it. Any thread.
#ifndef COMMPOOL_SRC_BACKING_PLACEMENT_H_
#define COMMPOOL_SRC_BACKING_PLACEMENT_H_

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/base/bytes.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// Where a segment's physical memory is, and the device that it is made for.
struct Placement {
  enum class Kind { kDevice = COMMPOOL_LOCATION_DEVICE, kHostNuma = COMMPOOL_LOCATION_HOST_NUMA };
  Kind kind = Kind::kDevice;
  int device = 0;      // whose allocations it serves; its own memory where kind is kDevice
  int numa_node = -1;  // of kHostNuma
};

// OK, or kNotSupported and why. For device memory the peer must reach its owner; for host memory the peer must map host
// NUMA memory.
Status CanReach(const Driver& driver, const Placement& placement, int peer);

CUmemLocation LocationOf(const Placement& placement);

// For memory without a known granularity: the page size of cudaMalloc.
inline constexpr uint64_t kDevicePageBytes = 2 * kMiB;

// For cuMemCreate memory: the driver's recommendation, or multicast's minimum where that is larger (NVLS accepts no
// less, and falls back silently). Only asks; makes no multicast object.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_PLACEMENT_H_
