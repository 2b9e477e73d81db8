// The vmm backing: cuMemCreate on a device or a host NUMA node, one physical handle a segment.
//
// On a NUMA node of the host it takes the best of a ladder: fabric handles, descriptors, no handles, and last memory of
// the process's own, bound and registered (bound_backing.h). Drivers say that they make such memory and refuse it then,
// so any refusal but out-of-memory is a step down, and the backing knows why it stands where it does.
//
// It has every ability. Only its own device has access until a peer is granted. NCCL and other processes can import its
// handles. It asks for GPUDirect RDMA where the device has it. Its granularity is the one that multicast needs.
#include <unistd.h>

#include <atomic>
#include <utility>
#include <vector>

#include "src/library/backing/backing.h"
#include "src/library/backing/bound_backing.h"
#include "src/library/backing/kept_addresses.h"
#include "src/library/backing/node_pages.h"
#include "src/library/backing/territory.h"
#include "src/library/base/mutex.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"

namespace commpool::internal {

namespace {

// A real driver refuses fabric handles to a process without an IMEX channel. Under a sanitizer each refused call is an
// error, so look for the channels first.
bool MayHaveFabricHandles(const Driver& driver, const DeviceInfo& info) {
  if (!info.fabric_handles || driver.refusals->fabric_handles) return false;
  return driver.kind != DriverChoice::kCuda || access("/dev/nvidia-caps-imex-channels", F_OK) == 0;
}

// Handle types to ask for.
struct Handles {
  Reach reach;
  unsigned types;
  const char* name;
};

// Best first. Fabric handles reach other hosts, and most hosts deny them (no IMEX channel).
std::vector<Handles> HandlesToAskFor(const Driver& driver, const DeviceInfo& info) {
  std::vector<Handles> handles;
  const unsigned descriptor = info.file_descriptor_handles ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
  if (MayHaveFabricHandles(driver, info)) {
    handles.push_back({Reach::kHosts, descriptor | CU_MEM_HANDLE_TYPE_FABRIC, "fabric handles"});
  }
  if (descriptor != 0) handles.push_back({Reach::kProcesses, descriptor, "file descriptor handles"});
  handles.push_back({Reach::kNobody, CU_MEM_HANDLE_TYPE_NONE, "no handles"});
  return handles;
}

class VmmBacking : public Backing {
 public:
  VmmBacking(const BackingBasis& basis, uint64_t granularity)
      : Backing(kVmmBacking, basis, granularity),
        rdma_(basis.info.gpu_direct_rdma && basis.placement.kind == Placement::Kind::kDevice),
        handles_(HandlesToAskFor(basis.driver, basis.info)),
        node_(basis.placement.numa_node) {}

  // A page is mapped later, or was before: its handle alone tells where it lies.
  Result<PhysicalMemory> MakePage(uint64_t bytes) override {
    PhysicalMemory memory = COMMPOOL_TRY(MakeMemory(bytes));
    if (on_host()) COMMPOOL_TRY(node_.Add(AskHandle(driver(), memory)));
    return memory;
  }

  void AddHandleTraits(commpool_segment_traits& traits) const override {
    const unsigned types = handles_[accepted_].types;
    traits.one_handle = 1;
    traits.descriptor = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    traits.fabric = (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    traits.rdma = rdma_;
  }

  MemoryFacts Facts() const override {
    MemoryFacts facts = Backing::Facts();
    facts.what += std::string(", ") + (made_ ? handles_[accepted_].name : "nothing made so far") + node_.Text();
    MutexLock lock(mutex_);
    facts.why = refusals_;
    return facts;
  }

  Reach reach() const override { return on_host() ? handles_[accepted_].reach : Reach::kHosts; }
  void SettleOn(Reach reach) override {
    if (!on_host()) return;
    while (handles_[accepted_].reach < reach) accepted_ = accepted_ + 1;
    settled_ = true;
  }

 private:
  // The driver has several errors for a refused handle type. So after every error but out-of-memory it tries the next
  // type. Later segments begin with the type that was accepted. The last try asks for the least, so its failure names
  // the cause.
  Result<PhysicalMemory> MakeMemory(uint64_t bytes) {
    for (size_t choice = accepted_;; ++choice) {
      Result<PhysicalMemory> memory = PhysicalMemory::Create(driver(), bytes, Properties(handles_[choice].types));
      if (memory.ok()) {
        accepted_ = choice;
        made_ = true;
      }
      const bool refused = !memory.ok() && memory.status().code() != StatusCode::kOutOfMemory;
      if (!refused || choice + 1 == handles_.size() || settled_) return memory;
      LearnRefusal(handles_[choice], memory.status());
    }
  }

  // A segment is a territory of one page.
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest& request) override {
    // Physical memory first, because memory is what runs out, and its failure names the location.
    PhysicalMemory memory = COMMPOOL_TRY(MakeMemory(bytes));
    const NodeAnswer of_handle = on_host() ? AskHandle(driver(), memory) : NodeAnswer();
    std::shared_ptr<KeptAddresses> addresses = Addresses();
    AddressRange range = COMMPOOL_TRY(addresses->Take(bytes));
    auto segment = std::make_unique<Territory>(*this, std::move(range), request.peers, std::move(addresses));
    COMMPOOL_TRY(segment->Map(std::move(memory), segment->address()));
    COMMPOOL_TRY(segment->Open(segment->address(), bytes));
    if (on_host()) COMMPOOL_TRY(AddNode(*segment, of_handle));
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

  // The kernel has the last word on pages that it maps itself.
  Status AddNode(const Segment& segment, const NodeAnswer& of_handle) {
    const auto* const pages = reinterpret_cast<const void*>(segment.address());
    const NodeAnswer of_pages = AskKernel(driver(), pages, segment.bytes(), placement().numa_node);
    return node_.Add(of_pages.witness == NodeWitness::kNobody ? of_handle : of_pages);
  }

  MemoryKind memory() const override {
    if (handles_[accepted_].reach == Reach::kNobody) return MemoryKind::kUnshareable;
    return on_host() ? MemoryKind::kHostVirtual : MemoryKind::kVirtual;
  }

  bool on_host() const { return placement().kind == Placement::Kind::kHostNuma; }

  // A refusal of fabric handles on a device holds for every pool. Host memory may be refused on its own.
  void LearnRefusal(const Handles& handles, const Status& status) {
    const bool of_fabric = handles.reach == Reach::kHosts && status.code() == StatusCode::kNotSupported;
    if (of_fabric && !on_host()) driver().refusals->fabric_handles = true;
    MutexLock lock(mutex_);
    if (refusals_.find(handles.name) != std::string::npos) return;
    refusals_ += (refusals_.empty() ? "" : "; ") + std::string(handles.name) + ": " + status.message();
  }

  CUmemAllocationProp Properties(unsigned handle_types) const {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = LocationOf(placement());
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
    properties.allocFlags.gpuDirectRDMACapable = rdma_ ? 1 : 0;
    return properties;
  }

  mutable Mutex mutex_{LockRank::kLeaf};
  std::weak_ptr<KeptAddresses> addresses_ COMMPOOL_GUARDED_BY(mutex_);  // shared by the segments
  const bool rdma_;
  const std::vector<Handles> handles_;
  NodeProof node_;
  // Read while another thread makes a segment.
  std::atomic<size_t> accepted_{0};
  std::atomic<bool> made_{false};
  std::atomic<bool> settled_{false};                  // the ranks have agreed on what is accepted
  std::string refusals_ COMMPOOL_GUARDED_BY(mutex_);  // of better handles
};

// The device's own answer. What a NUMA node gives shows only when a backing is made.
Status CanMakeVmm(const Driver&, const DeviceInfo& info, const Placement& placement) {
  if (info.virtual_memory || placement.kind == Placement::Kind::kHostNuma) return Status();
  return NotSupported("device ", info.device, " has no virtual memory management (cuMemCreate)");
}

// The last step of the ladder: neither pages nor handles.
constinit const BackingRow kBoundRow = {
    .kind = BackingKind::kVmm,
    .name = "vmm",
    .places = Places::kDeviceAndHostNuma,
    .why_no_revoke = kPinnedForAll,
    .opening = Opening::kAllDevices,
};

// Makes and releases the smallest piece: a driver reports a granularity even for nodes that do not exist.
Result<std::unique_ptr<Backing>> MakeOnHost(BackingBasis basis) {
  if (basis.placement.numa_node < 0) basis.placement.numa_node = NearestNode(basis.info);
  std::string why = "device " + std::to_string(basis.info.device) +
                    " maps no memory of host NUMA nodes, says the driver (attribute 141; CUDA 12.2 first)";
  if (basis.info.virtual_memory && basis.info.host_numa_memory) {
    const Result<uint64_t> granularity = FindGranularity(basis.driver, basis.info, basis.placement);
    if (!granularity.ok()) return MakeBoundBacking(kBoundRow, basis, kDevicePageBytes, granularity.status().message());
    auto backing = std::make_unique<VmmBacking>(basis, *granularity);
    const Status probed = backing->Make({.bytes = 1}).status();
    if (probed.ok() || probed.code() == StatusCode::kOutOfMemory) return std::unique_ptr<Backing>(std::move(backing));
    const std::string refusals = backing->Facts().why;
    why = refusals + (refusals.empty() ? "" : "; ") + "no handles: " + probed.message();
  }
  return MakeBoundBacking(kBoundRow, basis, kDevicePageBytes, why);
}

Result<std::unique_ptr<Backing>> MakeVmmBacking(BackingBasis basis, const BackingRequest&) {
  if (basis.placement.kind == Placement::Kind::kHostNuma) return MakeOnHost(std::move(basis));
  const uint64_t granularity = COMMPOOL_TRY(FindGranularity(basis.driver, basis.info, basis.placement));
  return std::unique_ptr<Backing>(std::make_unique<VmmBacking>(basis, granularity));
}

}  // namespace

constinit const BackingRow kVmmBacking = {
    .kind = BackingKind::kVmm,
    .name = "vmm",
    .places = Places::kDeviceAndHostNuma,
    .movement = Movement::kInPages,
    .can_make = CanMakeVmm,
    .make = MakeVmmBacking,
};

}  // namespace commpool::internal
