#include "src/backing/peer_access.h"

#include "src/driver/device_info.h"

namespace commpool::internal {

Capability CanReach(const Driver& driver, const Placement& placement, int peer) {
  if (placement.kind == Placement::Kind::kHostNuma) {
    Result<DeviceInfo> info = DescribeDevice(driver, peer);
    if (!info.ok()) return Capability::No(info.status().message());
    if (info->host_numa_memory) return Capability::Yes();
    return Capability::No("device " + std::to_string(peer) + " cannot map memory of a host NUMA node");
  }
  Result<std::string> reason = WhyUnreachable(driver, peer, placement.device);
  if (!reason.ok()) return Capability::No(reason.status().message());
  return reason->empty() ? Capability::Yes() : Capability::No(*reason);
}

Status RefuseUnless(const Capability& capability, const std::string& what) {
  if (capability.available) return Status();
  return Status(StatusCode::kNotSupported, what + ": " + capability.reason);
}

}  // namespace commpool::internal
