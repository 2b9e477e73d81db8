#include "src/backing/segment_size.h"

#include <algorithm>
#include <optional>

#include "src/driver/diagnosis.h"

namespace commpool::internal {

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
  Status status = CheckCuda(
      driver,
      driver.cuda.cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      {.call = "cuMemGetAllocationGranularity", .device = placement.device});
  if (!status.ok()) return status;
  if (!info.multicast || placement.kind == Placement::Kind::kHostNuma) return uint64_t{recommended};

  CUmulticastObjectProp multicast = {};
  multicast.numDevices = static_cast<unsigned>(info.reachable_peers.size() + 1);
  multicast.size = recommended;
  multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t least = 0;
  const CUresult result = driver.cuda.cuMulticastGetGranularity(&least, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM);
  // Without an answer nothing can be bound, and the recommended one serves.
  return uint64_t{result == CUDA_SUCCESS ? std::max(recommended, least) : recommended};
}

Result<uint64_t> RoundToGranularity(uint64_t bytes, uint64_t granularity) {
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "a segment of 0 bytes cannot be made");
  const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, granularity);
  if (rounded) return *rounded;
  return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) +
                                                  " bytes cannot be made: rounded up to " + FormatBytes(granularity) +
                                                  " it overflows 64 bits");
}

}  // namespace commpool::internal
