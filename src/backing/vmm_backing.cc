#include "src/backing/vmm_backing.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool {

namespace {

CUmemLocation LocationOf(const Placement& placement) {
  CUmemLocation location = {};
  const bool on_device = placement.kind == Placement::Kind::kDevice;
  location.type = on_device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = on_device ? placement.device : placement.numa_node;
  return location;
}

CUmemLocation DeviceLocation(int device) { return LocationOf({Placement::Kind::kDevice, device, -1}); }

// Handle types to ask for, best first. Fabric handles reach other hosts, but most machines deny them (no IMEX channel).
std::vector<unsigned> HandleTypes(const DeviceInfo& info) {
  std::vector<unsigned> types;
  const unsigned descriptor = info.file_descriptor_handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
  if (info.fabric_handles) types.push_back(descriptor | CU_MEM_HANDLE_TYPE_FABRIC);
  if (descriptor != 0) types.push_back(descriptor);
  types.push_back(CU_MEM_HANDLE_TYPE_NONE);
  return types;
}

class VmmSegment : public Segment {
 public:
  VmmSegment(const Driver& driver, std::shared_ptr<const PrimaryContext> context, AddressRange range,
             PhysicalMemory memory, Mapping mapping)
      : driver_(driver),
        context_(std::move(context)),
        range_(std::move(range)),
        memory_(std::move(memory)),
        mapping_(std::move(mapping)) {}
  ~VmmSegment() override {
    Status status = Free();
    if (!status.ok()) Log(LogLevel::kWarning, status.message());
  }

  CUdeviceptr address() const override { return range_.address(); }
  uint64_t bytes() const override { return range_.bytes(); }

  Status Grant(int peer) override {
    return mapping_.SetAccess(DeviceLocation(peer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  Status Revoke(int peer) override { return mapping_.SetAccess(DeviceLocation(peer), CU_MEM_ACCESS_FLAGS_PROT_NONE); }

  // In the order of the driver's rules: unmap, then release, then give the addresses back.
  Status Free() override {
    if (!mapping_.valid() && !memory_.valid() && !range_.valid()) return Status();
    ContextGuard guard(driver_, *context_);
    Status first = mapping_.Release();
    if (!first.ok()) {
      // Still mapped: the addresses must not be handed out again.
      Abandon();
      return first;
    }
    for (Status status : {memory_.Release(), range_.Release()}) {
      if (first.ok()) first = status;
    }
    return first;
  }

  void Abandon() override {
    mapping_.Abandon();
    memory_.Abandon();
    range_.Abandon();
  }

 private:
  const Driver& driver_;
  const std::shared_ptr<const PrimaryContext> context_;  // retained while the segment lives
  AddressRange range_;
  PhysicalMemory memory_;
  Mapping mapping_;
};

class VmmBacking : public Backing {
 public:
  VmmBacking(const Driver& driver, const DeviceInfo& info, const Placement& placement, PrimaryContext context,
             uint64_t granularity)
      : driver_(driver),
        info_(info),
        placement_(placement),
        context_(std::make_shared<PrimaryContext>(std::move(context))),
        granularity_(granularity),
        handle_types_(HandleTypes(info)) {}

  const char* name() const override { return "vmm"; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return granularity_; }

  Result<std::unique_ptr<Segment>> Make(uint64_t bytes) override {
    const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, granularity_);
    if (bytes == 0 || !rounded) {
      return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) + " bytes cannot be made");
    }
    ContextGuard guard(driver_, *context_);
    Result<AddressRange> range = AddressRange::Reserve(driver_, *rounded, granularity_);
    if (!range.ok()) return range.status();
    Result<PhysicalMemory> memory = Create(*rounded);
    if (!memory.ok()) return memory.status();
    Result<Mapping> mapping = Mapping::Map(driver_, range->address(), *memory);
    if (!mapping.ok()) return mapping.status();
    Status status = mapping->SetAccess(DeviceLocation(placement_.device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (status.ok() && placement_.kind == Placement::Kind::kHostNuma) {
      // The CPU's access must be asked for too; it is legal on host memory only.
      status = mapping->SetAccess(LocationOf(placement_), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    if (!status.ok()) return status;
    return std::unique_ptr<Segment>(
        std::make_unique<VmmSegment>(driver_, context_, std::move(*range), std::move(*memory), std::move(*mapping)));
  }

  Capability CanGrant(int peer) const override {
    if (placement_.kind == Placement::Kind::kHostNuma) {
      Result<DeviceInfo> info = DescribeDevice(driver_, peer);
      if (!info.ok()) return Capability::No(info.status().message());
      return info->host_numa_memory ? Capability::Yes()
                                    : Capability::No("device " + std::to_string(peer) + " cannot map host NUMA memory");
    }
    // Access is the peer's to the owner's memory.
    Result<std::string> reason = WhyUnreachable(driver_, peer, placement_.device);
    if (!reason.ok()) return Capability::No(reason.status().message());
    return reason->empty() ? Capability::Yes() : Capability::No(*reason);
  }
  Capability CanRevoke() const override { return Capability::Yes(); }

  Capability CanRegisterLocal() const override {
    if (placement_.kind == Placement::Kind::kHostNuma) {
      return Capability::No(
          "NCCL takes no host memory in ncclCommRegister: 2.28 accepts it and does not use it, 2.30 "
          "skips it");
    }
    return driver_.nccl.has_local_registration()
               ? Capability::Yes()
               : Capability::No("ncclCommRegister needs NCCL 2.19; there is " + NcclHere());
  }
  Capability CanRegisterWindow() const override {
    if (!driver_.nccl.has_windows()) return Capability::No("windows need NCCL 2.27; there is " + NcclHere());
    if (placement_.kind == Placement::Kind::kHostNuma && !driver_.nccl.has_host_windows()) {
      return Capability::No("windows over host memory need NCCL 2.30.3; there is " + NcclHere());
    }
    if (handle_types_[chosen_] == CU_MEM_HANDLE_TYPE_NONE) {
      return Capability::No("the device offers no shareable handles, which windows need");
    }
    return Capability::Yes();
  }

 private:
  std::string NcclHere() const {
    return driver_.nccl.available() ? "NCCL " + FormatNcclVersion(driver_.nccl.version) : "none";
  }

  // What the device refused once it refuses for good: later segments start with what worked.
  Result<PhysicalMemory> Create(uint64_t bytes) {
    for (;;) {
      const size_t choice = chosen_;
      Result<PhysicalMemory> memory = PhysicalMemory::Create(driver_, bytes, Properties(handle_types_[choice]));
      if (memory.ok() || memory.status().code() != StatusCode::kNotSupported) return memory;
      if (choice + 1 == handle_types_.size()) return memory;
      chosen_ = choice + 1;
    }
  }

  CUmemAllocationProp Properties(unsigned handle_types) const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = LocationOf(placement_);
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    const bool rdma = info_.gpu_direct_rdma && placement_.kind == Placement::Kind::kDevice;
    properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
    return properties;
  }

  const Driver& driver_;
  const DeviceInfo info_;
  const Placement placement_;
  const std::shared_ptr<const PrimaryContext> context_;
  const uint64_t granularity_;
  const std::vector<unsigned> handle_types_;
  std::atomic<size_t> chosen_{0};
};

// The larger of the recommended granularity and the least that multicast binds: NVLS falls back silently on less.
Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(placement);
  size_t granularity = 0;
  Status status = CheckCuda(
      driver,
      driver.cuda.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      {.call = "cuMemGetAllocationGranularity", .device = placement.device});
  if (!status.ok()) return status;
  if (info.multicast && placement.kind == Placement::Kind::kDevice) {
    CUmulticastObjectProp multicast = {};
    multicast.numDevices = static_cast<unsigned>(info.reachable_peers.size() + 1);
    multicast.size = granularity;
    multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    size_t least = 0;
    const CUresult result = driver.cuda.cuMulticastGetGranularity(&least, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) granularity = std::max(granularity, least);
  }
  return uint64_t{granularity};
}

}  // namespace

Capability CanMakeVmm(const Driver&, const DeviceInfo& info, const Placement& placement) {
  if (!info.virtual_memory) {
    return Capability::No("device " + std::to_string(info.device) + " has no virtual memory management (cuMemCreate)");
  }
  if (placement.kind == Placement::Kind::kHostNuma && !info.host_numa_memory) {
    return Capability::No("device " + std::to_string(info.device) +
                          " cannot map memory of a host NUMA node (driver before 12.2, or attribute 141 is 0)");
  }
  return Capability::Yes();
}

Result<std::unique_ptr<Backing>> MakeVmmBacking(const Driver& driver, const DeviceInfo& info, Placement placement) {
  if (placement.kind == Placement::Kind::kHostNuma && placement.numa_node < 0) {
    placement.numa_node = std::max(info.host_numa_node, 0);  // -1 is what one-node machines answer
  }
  Result<PrimaryContext> context = PrimaryContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  Result<uint64_t> granularity = FindGranularity(driver, info, placement);
  if (!granularity.ok()) {
    if (placement.kind == Placement::Kind::kDevice) return granularity.status();
    return Status(StatusCode::kInvalidArgument, "there is no host NUMA node " + std::to_string(placement.numa_node) +
                                                    ": " + granularity.status().message());
  }
  return std::unique_ptr<Backing>(
      std::make_unique<VmmBacking>(driver, info, placement, std::move(*context), *granularity));
}

}  // namespace commpool
