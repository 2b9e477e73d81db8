#include "src/library/driver/topology.h"

#include <algorithm>
#include <string>

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

Status CheckReachable(const Driver& driver, int device, int peer) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  for (const int asked : {device, peer}) {
    if (asked >= 0 && asked < count) continue;
    return Status(StatusCode::kNotSupported, NoSuchDevice(asked, count));
  }
  if (device == peer) return Status();
  int reachable = 0;
  COMMPOOL_TRY(CheckCuda(driver, driver.cuda.cuDeviceCanAccessPeer(&reachable, device, peer),
                         {.call = "cuDeviceCanAccessPeer", .device = device}));
  if (reachable != 0) return Status();
  return Status(StatusCode::kNotSupported, "device " + std::to_string(device) + " cannot reach the memory of device " +
                                               std::to_string(peer) + ": no NVLink or PCIe peer access between them");
}

Result<std::vector<int>> PeersThatReach(const Driver& driver, int device) {
  const int count = COMMPOOL_TRY(DeviceCount(driver));
  std::vector<int> peers;
  for (int peer = 0; peer < count; ++peer) {
    if (peer != device && CheckReachable(driver, peer, device).ok()) peers.push_back(peer);
  }
  return peers;
}

int NearestNode(const DeviceInfo& info) { return std::max(info.host_numa_node, 0); }

int LargestMulticastGroup(const DeviceInfo& info) {
  return info.multicast ? static_cast<int>(info.reachable_peers.size()) + 1 : 0;
}

}  // namespace commpool::internal
