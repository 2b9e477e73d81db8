// Where memory lies, what can be done there, and which devices reach it. Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_BACKING_PLACEMENT_H_
#define COMMPOOL_SRC_LIBRARY_BACKING_PLACEMENT_H_

#include <cuda.h>

#include <cstdint>
#include <string>

#include "commpool/status.h"
#include "src/library/base/bytes.h"
#include "src/library/driver/device_info.h"

namespace commpool::internal {

// Where a segment's physical memory is, and the device that it is made for.
struct Placement {
  enum class Kind { kDevice = COMMPOOL_LOCATION_DEVICE, kHostNuma = COMMPOOL_LOCATION_HOST_NUMA };
  Kind kind = Kind::kDevice;
  int device = 0;      // the device that uses the memory; where kind is kDevice the memory lies there too
  int numa_node = -1;  // of kHostNuma; -1: the nearest, or for a backing of the host alone any
};

// OK, or kNotSupported and why. For device memory the peer must reach its owner; for host memory the peer must map host
// NUMA memory.
Status CanReach(const Driver& driver, const Placement& placement, int peer);

// OK where the process sees the device; else kNotSupported: for memory that every device may use.
Status CheckDeviceIsThere(const Driver& driver, int device);

// "device 0", "host NUMA node 1", "host".
std::string NameOf(const Placement& placement);

CUmemLocation LocationOf(const Placement& placement);

// The granularity of memory for which the driver tells none: the page size of cudaMalloc.
inline constexpr uint64_t kDevicePageBytes = 2 * kMiB;

// The granularity of cuMemCreate memory: the driver's recommendation, or multicast's minimum where that is larger (with
// less, NVLS would fall back silently). It only asks, and makes no multicast object.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_BACKING_PLACEMENT_H_
