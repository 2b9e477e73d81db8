// The vmm backing: cuMemCreate on a device or a host NUMA node, one physical handle a segment.
//
// It can do everything: only its own device has access until a peer is granted, NCCL and other processes can import its
// handles, it asks for GPUDirect RDMA where the device has it, and its granularity is the one that multicast wants.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "src/backing/backing_row.h"
#include "src/backing/device_context.h"
#include "src/backing/kept_addresses.h"
#include "src/backing/nccl_support.h"
#include "src/backing/peer_access.h"
#include "src/backing/segment_size.h"
#include "src/backing/vmm_segment.h"
#include "src/driver/handles.h"

namespace commpool::internal {

namespace {

// A real driver denies fabric handles to a process without an IMEX channel, and a refused call is an error in every run
// under a sanitizer: so the channels are looked for first.
bool MayHaveFabricHandles(const Driver& driver, const DeviceInfo& info) {
  if (!info.fabric_handles || driver.refusals->fabric_handles) return false;
  return driver.kind != DriverChoice::kCuda || access("/dev/nvidia-caps-imex-channels", F_OK) == 0;
}

// Handle types to ask for, best first. Fabric handles reach other hosts, and most hosts deny them (no IMEX channel).
std::vector<unsigned> HandleTypes(const Driver& driver, const DeviceInfo& info) {
  std::vector<unsigned> types;
  const unsigned descriptor = info.file_descriptor_handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
  if (MayHaveFabricHandles(driver, info)) types.push_back(descriptor | CU_MEM_HANDLE_TYPE_FABRIC);
  if (descriptor != 0) types.push_back(descriptor);
  types.push_back(CU_MEM_HANDLE_TYPE_NONE);
  return types;
}

class VmmBacking : public Backing, public PageSource {
 public:
  VmmBacking(const Driver& driver, const DeviceInfo& info, const Placement& placement,
             std::shared_ptr<DeviceContext> context, uint64_t granularity)
      : driver_(driver),
        placement_(placement),
        context_(std::move(context)),
        granularity_(granularity),
        addresses_(std::make_shared<KeptAddresses>(driver, granularity)),
        rdma_(info.gpu_direct_rdma && placement.kind == Placement::Kind::kDevice),
        handle_types_(HandleTypes(driver, info)) {}
  ~VmmBacking() override { addresses_->End(); }  // segments may outlive it

  const char* name() const override { return kVmmBacking.name; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return granularity_; }

  Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request) override {
    Result<uint64_t> rounded = RoundToGranularity(request.bytes, granularity_);
    if (!rounded.ok()) return rounded.status();
    ContextGuard guard(driver_, context_->get());
    // Physical memory first: it is what runs out, and its failure names the location.
    Result<PhysicalMemory> memory = Create(*rounded);
    if (!memory.ok()) return memory.status();
    return VmmSegment::Map({driver_, context_, addresses_, placement_}, std::move(*memory), request.peers);
  }

  bool grants_when_made() const override { return true; }

  PageSource* pages() override { return this; }
  const Driver& driver() const override { return driver_; }
  const std::shared_ptr<DeviceContext>& context() const override { return context_; }
  // Its caller has made the context current, once for all pages of a growth.
  Result<PhysicalMemory> MakePage(uint64_t bytes) override { return Create(bytes); }

  // Makes and gives back the least that there is: the driver knows a granularity even for nodes that are not there.
  Status Probe() {
    ContextGuard guard(driver_, context_->get());
    return Create(granularity_).status();
  }

  Capability CanGrant(int peer) const override { return CanReach(driver_, placement_, peer); }
  Capability CanRevoke() const override { return Capability::Yes(); }
  Capability CanRegisterLocal() const override { return CanRegisterLocalMemory(driver_.nccl, Memory()); }
  Capability CanRegisterWindow() const override { return CanRegisterWindowMemory(driver_.nccl, Memory()); }

 private:
  MemoryKind Memory() const {
    if (handle_types_[accepted_] == CU_MEM_HANDLE_TYPE_NONE) return MemoryKind::kUnshareable;
    return placement_.kind == Placement::Kind::kHostNuma ? MemoryKind::kHostVirtual : MemoryKind::kVirtual;
  }

  // A refused handle type shows as one of several errors, so whatever is not a lack of memory tries the next. Later
  // segments begin with what was accepted. The last failure has the fewest wishes in it, and so names the cause.
  Result<PhysicalMemory> Create(uint64_t bytes) {
    for (size_t choice = accepted_;; ++choice) {
      Result<PhysicalMemory> memory = PhysicalMemory::Create(driver_, bytes, Properties(handle_types_[choice]));
      if (memory.ok()) accepted_ = choice;
      const bool refused = !memory.ok() && memory.status().code() != StatusCode::kOutOfMemory;
      if (!refused || choice + 1 == handle_types_.size()) return memory;
      if (memory.status().code() == StatusCode::kNotSupported) LearnRefusal(handle_types_[choice]);
    }
  }

  // Fabric handles that are denied on a device are denied to every pool. Host memory may be refused for itself.
  void LearnRefusal(unsigned handle_types) {
    if ((handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && placement_.kind == Placement::Kind::kDevice) {
      driver_.refusals->fabric_handles = true;
    }
  }

  CUmemAllocationProp Properties(unsigned handle_types) const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = LocationOf(placement_);
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    properties.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
    return properties;
  }

  const Driver& driver_;
  const Placement placement_;
  const std::shared_ptr<DeviceContext> context_;
  const uint64_t granularity_;
  const std::shared_ptr<KeptAddresses> addresses_;
  const bool rdma_;
  const std::vector<unsigned> handle_types_;
  std::atomic<size_t> accepted_{0};  // asked about while another thread makes a segment
};

Status NoSuchNode(const Placement& placement, const Status& answer) {
  return Status(StatusCode::kInvalidArgument, "there is no host NUMA node " + std::to_string(placement.numa_node) +
                                                  " that the driver makes memory on: " + answer.message());
}

// What the device says; that a NUMA node exists shows when a backing is made.
Capability CanMakeVmm(const Driver&, const DeviceInfo& info, const Placement& placement) {
  const std::string device = "device " + std::to_string(info.device);
  if (!info.virtual_memory) return Capability::No(device + " has no virtual memory management (cuMemCreate)");
  if (placement.kind == Placement::Kind::kDevice || info.host_numa_memory) return Capability::Yes();
  return Capability::No(device +
                        " maps no memory of host NUMA nodes, says the driver (attribute 141; CUDA 12.2 first)");
}

// A numa_node of -1 becomes the node nearest to the device. kInvalidArgument where there is no such node.
Result<std::unique_ptr<Backing>> MakeVmmBacking(const Driver& driver, const DeviceInfo& info,
                                                const BackingRequest& request) {
  Placement placement = request.placement;
  const bool on_host = placement.kind == Placement::Kind::kHostNuma;
  if (on_host && placement.numa_node < 0) {
    placement.numa_node = std::max(info.host_numa_node, 0);  // the driver says -1 where there is one node only
  }
  Result<std::shared_ptr<DeviceContext>> context = DeviceContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  Result<uint64_t> granularity = FindGranularity(driver, info, placement);
  if (!granularity.ok()) return on_host ? NoSuchNode(placement, granularity.status()) : granularity.status();
  auto backing = std::make_unique<VmmBacking>(driver, info, placement, std::move(*context), *granularity);
  if (on_host) {
    Status probed = backing->Probe();
    if (!probed.ok() && probed.code() != StatusCode::kOutOfMemory) return NoSuchNode(placement, probed);
  }
  return std::unique_ptr<Backing>(std::move(backing));
}

}  // namespace

constinit const BackingRow kVmmBacking = {
    .kind = BackingKind::kVmm,
    .name = "vmm",
    .places = Places::kDeviceAndHostNuma,
    .maker = Maker::kLibrary,
    .movement = Movement::kInPages,
    .can_make = CanMakeVmm,
    .make = MakeVmmBacking,
    .memory = KindOfVirtualMemory,
};

}  // namespace commpool::internal
