#include "src/backing/vmm_segment.h"

#include <utility>

#include "src/backing/peer_access.h"
#include "src/backing/segment_size.h"
#include "src/base/host_reserve.h"
#include "src/base/log.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

Result<std::unique_ptr<Segment>> VmmSegment::Map(const Common& common, PhysicalMemory memory,
                                                 std::span<const int> peers) {
  Result<AddressRange> range = common.addresses->Take(memory.bytes());
  if (!range.ok()) return range.status();
  Result<Mapping> mapping = Mapping::Map(common.driver, range->address(), memory);
  if (!mapping.ok()) return mapping.status();
  const Placement& placement = common.placement;
  ReservedVector<int> devices = OthersThan(placement, peers);
  devices.insert(devices.begin(), placement.device);
  Status status =
      SetAccess(common.driver, range->address(), memory.bytes(), devices, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (status.ok() && placement.kind == Placement::Kind::kHostNuma) {
    status = mapping->SetAccess(LocationOf(placement), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);  // the CPU
  }
  if (!status.ok()) return status;
  return std::unique_ptr<Segment>(
      std::make_unique<VmmSegment>(common, std::move(*range), std::move(memory), std::move(*mapping)));
}

VmmSegment::VmmSegment(const Common& common, AddressRange range, PhysicalMemory memory, Mapping mapping)
    : driver_(common.driver),
      context_(common.context),
      addresses_(common.addresses),
      placement_(common.placement),
      range_(std::move(range)),
      memory_(std::move(memory)),
      mapping_(std::move(mapping)),
      address_(range_.address()),
      bytes_(range_.bytes()) {
  addresses_->SegmentBegins();
}

VmmSegment::~VmmSegment() {
  // Nobody released it: a growth is taken back, which leaves nothing behind.
  Status status = GiveBack([](AddressRange& range) { return range.Release(); });
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

Status VmmSegment::ChangeAccess(std::span<const int> peers, CUmemAccess_flags flags) {
  if (!mapping_.valid()) return Status(StatusCode::kFailedPrecondition, "changing access: the segment was freed");
  Status status = CheckReach(driver_, placement_, peers);
  if (!status.ok()) return status;
  ContextGuard guard(driver_, context_->get());
  return SetAccess(driver_, address_, bytes_, peers, flags);
}

// The segment's own device has access since it was mapped.
Status VmmSegment::Grant(std::span<const int> peers) {
  return ChangeAccess(OthersThan(placement_, peers), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

Status VmmSegment::Revoke(int peer) {
  if (peer == placement_.device) {
    return Status(StatusCode::kInvalidArgument,
                  "the access of the segment's own device " + std::to_string(peer) + " cannot be taken back");
  }
  return ChangeAccess(std::span<const int>(&peer, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

Status VmmSegment::UnmapAll() {
  ContextGuard guard(driver_, context_->get());
  return mapping_.Release();
}

void VmmSegment::ReleaseUnmapped() {
  if (!mapping_.valid()) memory_ = PhysicalMemory();
}

// One call lets in everybody: each costs what it maps.
Status VmmSegment::MapAll(const ReservedSet<int>& peers) {
  if (mapping_.valid()) return Status();
  ReservedVector<CUmemAccessDesc> access;
  const auto let_in = [&](const CUmemLocation& location) {
    access.push_back({location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  };
  let_in(LocationOf({.device = placement_.device}));
  if (placement_.kind == Placement::Kind::kHostNuma) let_in(LocationOf(placement_));  // the CPU
  for (const int peer : peers) let_in(LocationOf({.device = peer}));
  ContextGuard guard(driver_, context_->get());
  Result<Mapping> mapping = Mapping::Map(driver_, address_, memory_);
  if (!mapping.ok()) return mapping.status();
  Status status = CheckCuda(driver_, driver_.cuda.cuMemSetAccess(address_, bytes_, access.data(), access.size()),
                            {.call = "cuMemSetAccess", .device = placement_.device, .bytes = bytes_});
  if (status.ok()) mapping_ = std::move(*mapping);
  return status;
}

Result<CUdeviceptr> VmmSegment::WakeFrom(CUdeviceptr, uint64_t, PageSource& source, const ReservedSet<int>& peers) {
  if (!memory_.valid()) {
    Result<PhysicalMemory> memory = source.MakePage(bytes_);
    if (!memory.ok()) return memory.status();
    memory_ = std::move(*memory);
  }
  Status status = MapAll(peers);
  if (!status.ok()) return status;
  return address_ + bytes_;
}

Status VmmSegment::Release() {
  return GiveBack([this](AddressRange& range) { return addresses_->Keep(std::move(range)); });
}

template <typename EndOfAddresses>
Status VmmSegment::GiveBack(EndOfAddresses end) {
  if (!mapping_.valid() && !memory_.valid() && !range_.valid()) return Status();
  ContextGuard guard(driver_, context_->get());
  Status unmapped = mapping_.Release();
  if (!unmapped.ok()) {
    Abandon();  // still mapped: nothing else can be given back
    return unmapped;
  }
  Status released = memory_.Release();
  Status freed = end(range_);
  addresses_->SegmentEnded();
  return released.ok() ? freed : released;
}

void VmmSegment::Abandon() {
  const bool lives = mapping_.valid() || memory_.valid() || range_.valid();
  mapping_.Abandon();
  memory_.Abandon();
  range_.Abandon();
  addresses_->Abandon();
  if (lives) addresses_->SegmentEnded();
  context_->Abandon();
}

}  // namespace commpool::internal
