#include "src/library/backing/placement.h"

#include <algorithm>

#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

Status CanReach(const Driver& driver, const Placement& placement, int peer) {
  if (placement.kind == Placement::Kind::kHostNuma) {
    COMMPOOL_TRY(CheckDeviceIsThere(driver, peer));
    const DeviceInfo info = COMMPOOL_TRY(DescribeDevice(driver, peer));
    if (info.host_numa_memory) return Status();
    return Status(StatusCode::kNotSupported,
                  "device " + std::to_string(peer) + " cannot map memory of a host NUMA node");
  }
  return CheckReachable(driver, peer, placement.device);
}

Status CheckDeviceIsThere(const Driver& driver, int device) { return CheckReachable(driver, device, device); }

std::string NameOf(const Placement& placement) {
  if (placement.kind == Placement::Kind::kDevice) return "device " + std::to_string(placement.device);
  return placement.numa_node < 0 ? "host" : "host NUMA node " + std::to_string(placement.numa_node);
}

CUmemLocation LocationOf(const Placement& placement) {
  CUmemLocation location = {};
  const bool on_device = placement.kind == Placement::Kind::kDevice;
  location.type = on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = on_device ? placement.device : placement.numa_node;
  return location;
}

Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(placement);
  size_t recommended = 0;
  const CUresult answer =
      driver.cuda.cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  COMMPOOL_TRY(CheckCuda(driver, answer, {.call = "cuMemGetAllocationGranularity", .device = placement.device}));
  const int group = LargestMulticastGroup(info);
  if (group == 0 || placement.kind == Placement::Kind::kHostNuma) return uint64_t{recommended};

  CUmulticastObjectProp multicast = {};
  multicast.numDevices = static_cast<unsigned>(group);
  multicast.size = recommended;
  multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t least = 0;
  const CUresult result = driver.cuda.cuMulticastGetGranularity(&least, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM);
  // Without an answer no multicast object can exist, so the recommended granularity is enough.
  return uint64_t{result == CUDA_SUCCESS ? std::max(recommended, least) : recommended};
}

}  // namespace commpool::internal
