#include "src/backing/peer_access.h"

#include "src/backing/segment_size.h"
#include "src/driver/device_info.h"
#include "src/driver/diagnosis.h"

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

Status CheckReach(const Driver& driver, const Placement& placement, std::span<const int> peers) {
  for (const int peer : peers) {
    Status status = RefuseUnless(CanReach(driver, placement, peer), "changing access");
    if (!status.ok()) return status;
  }
  return Status();
}

ReservedVector<int> OthersThan(const Placement& placement, std::span<const int> devices) {
  ReservedVector<int> others(devices.begin(), devices.end());
  std::erase(others, placement.device);
  return others;
}

Status SetAccess(const Driver& driver, CUdeviceptr at, uint64_t bytes, std::span<const int> devices,
                 CUmemAccess_flags flags) {
  if (devices.empty()) return Status();
  ReservedVector<CUmemAccessDesc> access;
  for (const int device : devices) access.push_back({.location = LocationOf({.device = device}), .flags = flags});
  const CUresult result = driver.cuda.cuMemSetAccess(at, bytes, access.data(), access.size());
  if (result == CUDA_SUCCESS) return Status();
  std::string all = "access for devices";
  for (const int device : devices) all += " " + std::to_string(device);
  return CheckCuda(driver, result,
                   {.call = "cuMemSetAccess", .device = devices.front(), .bytes = bytes, .purpose = all.c_str()});
}

Status RefuseUnless(const Capability& capability, const std::string& what) {
  if (capability.available) return Status();
  return Status(StatusCode::kNotSupported, what + ": " + capability.reason);
}

}  // namespace commpool::internal
