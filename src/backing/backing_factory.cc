#include "src/backing/backing_factory.h"

#include "src/backing/nccl_support.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

namespace {

// What excludes itself on every machine.
Status CheckPlacement(const BackingRow& row, const Placement& placement) {
  if (placement.kind == Placement::Kind::kHostNuma && row.places == Places::kDevice) {
    const auto makes_host_memory = [](const BackingRow& other) { return other.places == Places::kDeviceAndHostNuma; };
    return Status(StatusCode::kInvalidArgument,
                  std::string("the ") + row.name +
                      " backing makes device memory only: a host NUMA location needs the " +
                      NamesOfBackings(makes_host_memory) + " backing");
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

// A backing that can be made here, and the device that it is for.
struct Choice {
  const BackingRow& row;
  DeviceInfo info;
};

Result<Choice> Choose(const Driver& driver, BackingKind kind, const Placement& placement) {
  const BackingRow* const row = FindBacking(kind);
  if (row == nullptr) {
    return Status(StatusCode::kNotSupported, "there is no backing " + std::to_string(static_cast<int>(kind)));
  }
  Result<DeviceInfo> info = DescribeDevice(driver, placement.device);
  if (!info.ok()) return info.status();
  Status status = CheckPlacement(*row, placement);
  if (!status.ok()) return status;
  const Capability capability = row->can_make(driver, *info, placement);
  if (!capability.available) return Status(StatusCode::kNotSupported, capability.reason);
  return Choice{*row, std::move(*info)};
}

}  // namespace

BackingDescription DescribeBacking(const Driver& driver, BackingKind kind, const Placement& placement) {
  const Result<Choice> choice = Choose(driver, kind, placement);
  if (!choice.ok()) {
    const Capability none = Capability::No(choice.status().message());
    return {none, none, none};
  }
  const MemoryKind memory = choice->row.memory(choice->info, placement);
  return {Capability::Yes(), CanRegisterLocalMemory(driver.nccl, memory), CanRegisterWindowMemory(driver.nccl, memory)};
}

Result<std::unique_ptr<Backing>> MakeBacking(const Driver& driver, const BackingRequest& request) {
  const Result<Choice> choice = Choose(driver, request.kind, request.placement);
  if (!choice.ok()) return choice.status();
  return choice->row.make(driver, choice->info, request);
}

}  // namespace commpool::internal
