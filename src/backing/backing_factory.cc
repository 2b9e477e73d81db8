#include "src/backing/backing_factory.h"

#include "src/backing/cuda_backing.h"
#include "src/backing/nccl_backing.h"
#include "src/backing/nccl_support.h"
#include "src/backing/vmm_backing.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

namespace {

Status Unknown(BackingKind kind) {
  return Status(StatusCode::kInvalidArgument, "there is no backing " + std::to_string(static_cast<int>(kind)));
}

// What excludes itself on every machine.
Status CheckPlacement(BackingKind kind, const Placement& placement) {
  if (placement.kind == Placement::Kind::kHostNuma && kind != BackingKind::kVmm) {
    return Status(StatusCode::kInvalidArgument, std::string("the ") + Name(kind) +
                                                    " backing makes device memory only: a host NUMA location needs the "
                                                    "vmm backing");
  }
  if (placement.numa_node < -1) {
    return Status(StatusCode::kInvalidArgument,
                  "there is no host NUMA node " + std::to_string(placement.numa_node) + ": -1 means the nearest");
  }
  if (placement.kind == Placement::Kind::kDevice && placement.numa_node != -1) {
    return Status(StatusCode::kInvalidArgument,
                  "host NUMA node " + std::to_string(placement.numa_node) + " was named for device memory");
  }
  return Status();
}

Capability CanMake(const Driver& driver, BackingKind kind, const DeviceInfo& info, const Placement& placement) {
  switch (kind) {
    case BackingKind::kVmm:
      return CanMakeVmm(info, placement);
    case BackingKind::kNccl:
      return CanMakeNccl(driver.nccl);
    case BackingKind::kCuda:
    case BackingKind::kUser:
      return Capability::Yes();
  }
  return Capability::No(Unknown(kind).message());
}

// The device, where such a backing can be made for it.
Result<DeviceInfo> Check(const Driver& driver, BackingKind kind, const Placement& placement) {
  Result<DeviceInfo> info = DescribeDevice(driver, placement.device);
  if (!info.ok()) return info;
  Status status = CheckPlacement(kind, placement);
  if (!status.ok()) return status;
  const Capability capability = CanMake(driver, kind, *info, placement);
  if (!capability.available) return Status(StatusCode::kNotSupported, capability.reason);
  return info;
}

MemoryKind MemoryOf(BackingKind kind, const DeviceInfo& info, const Placement& placement) {
  if (kind == BackingKind::kCuda) return MemoryKind::kLinear;
  if (kind == BackingKind::kUser) return MemoryKind::kForeign;
  if (!info.file_descriptor_handles && !info.fabric_handles) return MemoryKind::kUnshareable;
  return placement.kind == Placement::Kind::kHostNuma ? MemoryKind::kHostVirtual : MemoryKind::kVirtual;
}

}  // namespace

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

BackingDescription DescribeBacking(const Driver& driver, BackingKind kind, const Placement& placement) {
  Result<DeviceInfo> info = Check(driver, kind, placement);
  if (!info.ok()) {
    const Capability none = Capability::No(info.status().message());
    return {none, none, none};
  }
  const MemoryKind memory = MemoryOf(kind, *info, placement);
  return {Capability::Yes(), CanRegisterLocalMemory(driver.nccl, memory), CanRegisterWindowMemory(driver.nccl, memory)};
}

Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request) {
  Result<DeviceInfo> info = Check(driver, request.kind, request.placement);
  if (!info.ok()) return info.status();
  switch (request.kind) {
    case BackingKind::kVmm:
      return MakeVmmBacking(driver, *info, request.placement);
    case BackingKind::kCuda:
      return MakeCudaBacking(driver, request.placement);
    case BackingKind::kNccl:
      return MakeNcclBacking(driver, *info, request.placement);
    case BackingKind::kUser:
      return MakeUserBacking(driver, request.placement, request.user);
  }
  return Unknown(request.kind);
}

}  // namespace commpool::internal
