#include "src/library/backing/backing.h"

#include <algorithm>
#include <numeric>

#include "src/library/base/check.h"
#include "src/library/base/log.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

Status CanReach(const Driver& driver, const Placement& placement, int peer) {
  if (placement.kind == Placement::Kind::kHostNuma) {
    COMMPOOL_TRY(CheckReachable(driver, peer, peer));
    const DeviceInfo info = COMMPOOL_TRY(DescribeDevice(driver, peer));
    if (info.host_numa_memory) return Status();
    return NotSupported("device ", peer, " cannot map memory of a host NUMA node");
  }
  return CheckReachable(driver, peer, placement.device);
}

std::string NameOf(const Placement& placement) {
  if (placement.kind == Placement::Kind::kDevice) return "device " + std::to_string(placement.device);
  return placement.numa_node < 0 ? "host" : "host NUMA node " + std::to_string(placement.numa_node);
}

CUmemLocation LocationOf(const Placement& placement) {
  if (placement.kind == Placement::Kind::kDevice) return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = placement.device};
  return {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = placement.numa_node};
}

Result<uint64_t> FindGranularity(const Driver& driver, const DeviceInfo& info, const Placement& placement) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(placement);
  size_t recommended = 0;
  const CUresult answer =
      driver.cuda.cuMemGetAllocationGranularity(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  COMMPOOL_TRY(CheckCuda(driver, answer, {.call = "cuMemGetAllocationGranularity", .device = placement.device}));
  const int group = LargestMulticastGroup(info);
  if (group == 0 || placement.kind == Placement::Kind::kHostNuma) return uint64_t{recommended};

  CUmulticastObjectProp multicast = {};
  multicast.numDevices = static_cast<unsigned>(group);
  multicast.size = recommended;
  multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t least = 0;
  const CUresult result = driver.cuda.cuMulticastGetGranularity(&least, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM);
  // Without an answer no multicast object can exist, so the recommended granularity is enough.
  return uint64_t{result == CUDA_SUCCESS ? std::max(recommended, least) : recommended};
}

Segment::Segment(const Backing& backing, CUdeviceptr address, uint64_t bytes)
    : row_(backing.row()), driver_(backing.driver()), context_(backing.context()), address_(address), bytes_(bytes) {}

Status Segment::CheckLives(const char* what) const {
  if (lives_) return Status();
  return FailedPrecondition(what, ": the segment was freed");
}

Status Segment::Grant(std::span<const int> peers) {
  COMMPOOL_TRY(CheckLives("granting access"));
  std::vector<int> others(peers.begin(), peers.end());
  std::erase(others, context_->device());
  if (others.empty()) return Status();
  ContextGuard guard(driver_, context_->get());
  return GrantPeers(others);
}

Status Segment::Revoke(int peer) {
  COMMPOOL_TRY(CheckLives("revoking access"));
  if (peer == context_->device()) {
    return InvalidArgument("the access of the memory's own device ", peer, " cannot be taken back");
  }
  ContextGuard guard(driver_, context_->get());
  return RevokePeer(peer);
}

Status Segment::RevokePeer(int peer) {
  return FailedPrecondition("revoking the access of device ", peer, ": ", row_.why_no_revoke);
}

Result<int> Segment::Descriptor() {
  COMMPOOL_TRY(CheckLives("sharing"));
  if (descriptor_.valid()) return descriptor_.get();
  ContextGuard guard(driver_, context_->get());
  const PhysicalMemory memory = PhysicalMemory::At(driver_, address_, bytes_);
  if (!memory.valid()) return -1;
  FileDescriptor exported = COMMPOOL_TRY(memory.Export());
  descriptor_ = PrivateDescriptor::Make([&] { return std::move(exported); });
  if (!descriptor_.valid()) return SystemFailure("sharing a segment");
  return descriptor_.get();
}

std::optional<CUmemFabricHandle> Segment::FabricHandle() {
  if (!lives_ || fabric_is_known_) return fabric_;
  ContextGuard guard(driver_, context_->get());
  const PhysicalMemory memory = PhysicalMemory::At(driver_, address_, bytes_);
  if (memory.valid()) fabric_ = memory.FabricHandle();
  fabric_is_known_ = true;
  return fabric_;
}

Status Segment::Release() {
  if (!lives_) return Status();
  lives_ = false;
  DropHandles();
  ContextGuard guard(driver_, context_->get());
  return ReleaseMemory();
}

void Segment::Abandon() {
  lives_ = false;
  context_->Abandon();
}

void Segment::ReleaseAndLog() {
  Status status = Release();
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

void Segment::DropHandles() {
  descriptor_ = PrivateDescriptor();
  fabric_.reset();
  fabric_is_known_ = false;
}

Result<std::unique_ptr<Segment>> Backing::Make(const SegmentRequest& request) {
  if (request.bytes == 0) return InvalidArgument("a segment of 0 bytes cannot be made");
  const std::optional<uint64_t> bytes = CheckedRoundUp(request.bytes, granularity_);
  if (!bytes) {
    return InvalidArgument("a segment of ", request.bytes, " bytes cannot be made: rounded up to ",
                           FormatBytes(granularity_), " it overflows 64 bits");
  }
  ContextGuard guard(driver(), context()->get());
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(MakeSegment(*bytes, request));
  // What its memory is shows first now (MemoryKind).
  for (const int peer : request.peers) COMMPOOL_TRY(CanGrant(peer));
  if (!request.peers.empty()) COMMPOOL_TRY(segment->Grant(request.peers));
  return segment;
}

Result<PhysicalMemory> Backing::MakePage(uint64_t) {
  COMMPOOL_CHECK(false, "a backing whose memory comes in no pages is asked for one");
}

Status Backing::CanShare() const {
  const MemoryKind kind = memory();
  if (kind == MemoryKind::kVirtual || kind == MemoryKind::kHostVirtual) return Status();
  return NotSupported("memory of the ", row_.name, " backing has no handle that another process can import");
}

void Backing::AddHandleTraits(commpool_segment_traits& traits) const {
  traits.descriptor = CanShare().ok();
  traits.one_handle = traits.descriptor != 0 || memory() == MemoryKind::kUnshareable;
}

std::vector<int> Backing::OpenTo() const {
  std::vector<int> devices;
  if (row_.opening == Opening::kReachingDevices) {
    devices = PeersThatReach(driver(), placement().device).value_or(std::vector<int>());
  }
  if (row_.opening == Opening::kAllDevices) {
    devices.resize(static_cast<size_t>(DeviceCount(driver()).value_or(0)));
    std::iota(devices.begin(), devices.end(), 0);
  }
  devices.push_back(placement().device);
  return devices;
}

bool Backing::OthersMayUse() const {
  if (placement().kind != Placement::Kind::kDevice) return true;
  if (row_.opening != Opening::kUntold) return OpenTo().size() > 1;
  const Result<int> count = DeviceCount(driver());
  return !count.ok() || *count > 1;
}

Status Backing::CanGrant(int peer) const {
  // Every device that the process sees may use it.
  if (memory() == MemoryKind::kPinned) return CheckReachable(driver(), peer, peer);
  if (memory() != MemoryKind::kForeign || peer == placement().device) return CanReach(driver(), placement(), peer);
  return NotSupported(row_.why_no_revoke);
}

Status Backing::CanRevoke() const {
  return row_.why_no_revoke == nullptr ? Status() : FailedPrecondition(row_.why_no_revoke);
}

}  // namespace commpool::internal
