#include "src/backing/backing_factory.h"

#include "src/backing/cuda_backing.h"
#include "src/backing/nccl_backing.h"
#include "src/backing/vmm_backing.h"
#include "src/driver/device_info.h"

namespace commpool {

const char* Name(BackingKind kind) {
  switch (kind) {
    case BackingKind::kVmm:
      return "vmm";
    case BackingKind::kCuda:
      return "cuda";
    case BackingKind::kNccl:
      return "nccl";
    case BackingKind::kUser:
      return "user";
  }
  return "unknown";
}

Capability CanMakeBacking(const Driver& driver, BackingKind kind, const Placement& placement) {
  Result<DeviceInfo> info = DescribeDevice(driver, placement.device);
  if (!info.ok()) return Capability::No(info.status().message());
  if (placement.kind == Placement::Kind::kHostNuma && kind != BackingKind::kVmm) {
    return Capability::No(std::string("the ") + Name(kind) +
                          " backing makes device memory only: a host NUMA location needs the vmm backing");
  }
  switch (kind) {
    case BackingKind::kVmm:
      return CanMakeVmm(driver, *info, placement);
    case BackingKind::kNccl:
      return CanMakeNccl(driver);
    case BackingKind::kCuda:
    case BackingKind::kUser:
      return Capability::Yes();
  }
  return Capability::No("there is no such backing");
}

Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request) {
  Result<DeviceInfo> info = DescribeDevice(driver, request.placement.device);
  if (!info.ok()) return info.status();
  if (request.placement.kind == Placement::Kind::kHostNuma && request.kind != BackingKind::kVmm) {
    return Status(StatusCode::kInvalidArgument, CanMakeBacking(driver, request.kind, request.placement).reason);
  }
  const Capability capability = CanMakeBacking(driver, request.kind, request.placement);
  if (!capability.available) return Status(StatusCode::kNotSupported, capability.reason);
  switch (request.kind) {
    case BackingKind::kVmm:
      return MakeVmmBacking(driver, *info, request.placement);
    case BackingKind::kCuda:
      return MakeCudaBacking(driver, *info, request.placement);
    case BackingKind::kNccl:
      return MakeNcclBacking(driver, *info, request.placement);
    case BackingKind::kUser:
      return MakeUserBacking(driver, request.placement, request.user);
  }
  return Status(StatusCode::kInvalidArgument, "there is no such backing");
}

}  // namespace commpool
