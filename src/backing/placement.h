// Where memory lies, what may be made of it there, and who reaches it. Any thread.
#ifndef COMMPOOL_SRC_BACKING_PLACEMENT_H_
#define COMMPOOL_SRC_BACKING_PLACEMENT_H_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/base/bytes.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// Where a segment's physical memory is, and for whom it is made.
struct Placement {
  enum class Kind { kDevice = COMMPOOL_LOCATION_DEVICE, kHostNuma = COMMPOOL_LOCATION_HOST_NUMA };
  Kind kind = Kind::kDevice;
  int device = 0;      // whose allocations it serves; its own memory where kind is kDevice
  int numa_node = -1;  // of kHostNuma
};

// Whether something can be done and, where not, why: for refusals and for `commpool info`.
struct Capability {
  bool available = true;
  std::string reason;  // empty where available

  static Capability Yes() { return {}; }
  static Capability No(std::string why) { return {false, std::move(why)}; }
};

// OK where the capability is there; else kNotSupported: "`what`: reason".
Status RefuseUnless(const Capability& capability, const std::string& what);

// Device memory needs a way from the peer to its owner; host memory a peer that maps host NUMA memory.
Capability CanReach(const Driver& driver, const Placement& placement, int peer);

CUmemLocation LocationOf(const Placement& placement);

// For memory whose granularity nobody can ask: the page in which cudaMalloc takes memory from the device.
inline constexpr uint64_t kDevicePageBytes = 2 * kMiB;

// Of cuMemCreate memory: the larger of what the driver recommends and the least that multicast binds (NVLS uses no
// less, and falls back without a word). Asks only; makes no multicast object.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_PLACEMENT_H_
