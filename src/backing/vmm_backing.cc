// The vmm backing: cuMemCreate on a device or a host NUMA node, one physical handle a segment.
//
// It has every ability. Only its own device has access until a peer is granted. NCCL and other processes can import its
// handles. It asks for GPUDirect RDMA where the device has it. Its granularity is the one that multicast needs.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "src/backing/backing.h"
#include "src/backing/kept_addresses.h"
#include "src/backing/territory.h"
#include "src/base/mutex.h"
#include "src/base/try.h"

namespace commpool::internal {

namespace {

// A real driver refuses fabric handles to a process without an IMEX channel. Under a sanitizer each refused call is an
// error, so look for the channels first.
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

class VmmBacking : public Backing {
 public:
  VmmBacking(const BackingBasis& basis, uint64_t granularity)
      : Backing(kVmmBacking, basis, granularity),
        rdma_(basis.info.gpu_direct_rdma && basis.placement.kind == Placement::Kind::kDevice),
        handle_types_(HandleTypes(basis.driver, basis.info)) {}

  // The driver has several errors for a refused handle type. So after every error but out-of-memory it tries the next
  // type. Later segments begin with the type that was accepted. The last try asks for the least, so its failure names
  // the cause.
  Result<PhysicalMemory> MakePage(uint64_t bytes) override {
    for (size_t choice = accepted_;; ++choice) {
      Result<PhysicalMemory> memory = PhysicalMemory::Create(driver(), bytes, Properties(handle_types_[choice]));
      if (memory.ok()) accepted_ = choice;
      const bool refused = !memory.ok() && memory.status().code() != StatusCode::kOutOfMemory;
      if (!refused || choice + 1 == handle_types_.size()) return memory;
      if (memory.status().code() == StatusCode::kNotSupported) LearnRefusal(handle_types_[choice]);
    }
  }

  HandleTraits handle_traits() const override {
    const unsigned types = handle_types_[accepted_];
    return {.one_handle = true,
            .descriptor = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
            .fabric = (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0,
            .rdma = rdma_};
  }

 private:
  // A segment is a territory of one page.
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest& request) override {
    // Physical memory first, because memory is what runs out, and its failure names the location.
    PhysicalMemory memory = COMMPOOL_TRY(MakePage(bytes));
    std::shared_ptr<KeptAddresses> addresses = Addresses();
    AddressRange range = COMMPOOL_TRY(addresses->Take(bytes));
    auto segment = std::make_unique<Territory>(*this, std::move(range), request.peers, std::move(addresses));
    COMMPOOL_TRY(segment->Map(std::move(memory), segment->address()));
    COMMPOOL_TRY(segment->Open(segment->address(), bytes));
    return std::unique_ptr<Segment>(std::move(segment));
  }

  // The addresses that the segments keep together; the last segment destroys them.
  std::shared_ptr<KeptAddresses> Addresses() {
    MutexLock lock(mutex_);
    std::shared_ptr<KeptAddresses> addresses = addresses_.lock();
    if (addresses == nullptr) addresses = std::make_shared<KeptAddresses>(driver(), granularity());
    addresses_ = addresses;
    return addresses;
  }

  MemoryKind memory() const override {
    if (handle_types_[accepted_] == CU_MEM_HANDLE_TYPE_NONE) return MemoryKind::kUnshareable;
    return placement().kind == Placement::Kind::kHostNuma ? MemoryKind::kHostVirtual : MemoryKind::kVirtual;
  }

  // A refusal of fabric handles on a device holds for every pool. Host memory may be refused on its own.
  void LearnRefusal(unsigned handle_types) {
    if ((handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && placement().kind == Placement::Kind::kDevice) {
      driver().refusals->fabric_handles = true;
    }
  }

  CUmemAllocationProp Properties(unsigned handle_types) const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = LocationOf(placement());
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    properties.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
    return properties;
  }

  Mutex mutex_{LockRank::kLeaf};
  std::weak_ptr<KeptAddresses> addresses_ COMMPOOL_GUARDED_BY(mutex_);  // shared by the segments
  const bool rdma_;
  const std::vector<unsigned> handle_types_;
  std::atomic<size_t> accepted_{0};  // read while another thread makes a segment
};

Status NoSuchNode(const Placement& placement, const Status& answer) {
  return Status(StatusCode::kInvalidArgument, "there is no host NUMA node " + std::to_string(placement.numa_node) +
                                                  " that the driver makes memory on: " + answer.message());
}

// The device's own answer. Whether a NUMA node exists shows only when a backing is made.
Status CanMakeVmm(const Driver&, const DeviceInfo& info, const Placement& placement) {
  const std::string device = "device " + std::to_string(info.device);
  if (!info.virtual_memory) {
    return Status(StatusCode::kNotSupported, device + " has no virtual memory management (cuMemCreate)");
  }
  if (placement.kind == Placement::Kind::kDevice || info.host_numa_memory) return Status();
  return Status(StatusCode::kNotSupported,
                device + " maps no memory of host NUMA nodes, says the driver (attribute 141; CUDA 12.2 first)");
}

// A numa_node of -1 becomes the node nearest to the device. kInvalidArgument where there is no such node.
Result<std::unique_ptr<Backing>> MakeVmmBacking(BackingBasis basis, const BackingRequest&) {
  Placement& placement = basis.placement;
  const bool on_host = placement.kind == Placement::Kind::kHostNuma;
  if (on_host && placement.numa_node < 0) {
    placement.numa_node = std::max(basis.info.host_numa_node, 0);  // the driver says -1 on a machine with one node
  }
  const Result<uint64_t> granularity = FindGranularity(basis.driver, basis.info, placement);
  if (!granularity.ok()) return on_host ? NoSuchNode(placement, granularity.status()) : granularity.status();
  auto backing = std::make_unique<VmmBacking>(basis, *granularity);
  if (on_host) {
    // Makes and releases the smallest piece: the driver reports a granularity even for nodes that do not exist.
    ContextGuard guard(basis.driver, basis.context->get());
    const Status probed = backing->MakePage(*granularity).status();
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
    .why_no_revoke = nullptr,
};

}  // namespace commpool::internal
