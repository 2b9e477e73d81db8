#include "src/library/backing/backing.h"

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/base/log.h"
#include "src/library/driver/device_info.h"

namespace commpool::internal {

namespace {

// kInvalidArgument for zero and for sizes that overflow.
Result<uint64_t> RoundToGranularity(uint64_t bytes, uint64_t granularity) {
  if (bytes == 0) return Status(StatusCode::kInvalidArgument, "a segment of 0 bytes cannot be made");
  const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, granularity);
  if (rounded) return *rounded;
  return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) +
                                                  " bytes cannot be made: rounded up to " + FormatBytes(granularity) +
                                                  " it overflows 64 bits");
}

}  // namespace

Segment::Segment(const Backing& backing, CUdeviceptr address, uint64_t bytes)
    : row_(backing.row()), driver_(backing.driver()), context_(backing.context()), address_(address), bytes_(bytes) {}

Status Segment::CheckLives(const char* what) const {
  if (lives_) return Status();
  return Status(StatusCode::kFailedPrecondition, std::string(what) + ": the segment was freed");
}

Status Segment::Grant(std::span<const int> peers) {
  COMMPOOL_TRY(CheckLives("granting access"));
  std::vector<int> others;
  for (const int peer : peers) {
    if (peer != context_->device()) others.push_back(peer);
  }
  if (others.empty()) return Status();
  ContextGuard guard(driver_, context_->get());
  return GrantPeers(others);
}

Status Segment::Revoke(int peer) {
  COMMPOOL_TRY(CheckLives("revoking access"));
  if (peer == context_->device()) {
    return Status(StatusCode::kInvalidArgument,
                  "the access of the memory's own device " + std::to_string(peer) + " cannot be taken back");
  }
  ContextGuard guard(driver_, context_->get());
  return RevokePeer(peer);
}

Status Segment::RevokePeer(int peer) {
  return Status(StatusCode::kFailedPrecondition,
                "revoking the access of device " + std::to_string(peer) + ": " + row_.why_no_revoke);
}

Result<int> Segment::Descriptor() {
  COMMPOOL_TRY(CheckLives("sharing"));
  if (descriptor_.valid()) return descriptor_.get();
  ContextGuard guard(driver_, context_->get());
  const PhysicalMemory memory = PhysicalMemory::At(driver_, address_, bytes_);
  if (!memory.valid()) return -1;
  descriptor_ = COMMPOOL_TRY(memory.Export());
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
  descriptor_ = FileDescriptor();
  fabric_.reset();
  fabric_is_known_ = false;
}

Backing::Backing(const BackingRow& row, const BackingBasis& basis, uint64_t granularity)
    : row_(row),
      driver_(basis.driver),
      placement_(basis.placement),
      context_(basis.context),
      grants_(basis.grants),
      granularity_(granularity) {}

Result<std::unique_ptr<Segment>> Backing::Make(const SegmentRequest& request) {
  const uint64_t bytes = COMMPOOL_TRY(RoundToGranularity(request.bytes, granularity_));
  ContextGuard guard(driver_, context_->get());
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(MakeSegment(bytes, request));
  // What its memory is shows first now (MemoryKind).
  for (const int peer : request.peers) COMMPOOL_TRY(CanGrant(peer));
  if (!request.peers.empty()) COMMPOOL_TRY(segment->Grant(request.peers));
  return segment;
}

Result<PhysicalMemory> Backing::MakePage(uint64_t) {
  COMMPOOL_CHECK(false, "a backing whose memory comes in no pages is asked for one");
}

MemoryFacts Backing::Facts() const { return {NameOf(placement_), ""}; }

Status Backing::CanShare() const {
  const MemoryKind kind = memory();
  if (kind == MemoryKind::kVirtual || kind == MemoryKind::kHostVirtual) return Status();
  return Status(StatusCode::kNotSupported,
                std::string("memory of the ") + row_.name + " backing has no handle that another process can import");
}

HandleTraits Backing::handle_traits() const {
  const MemoryKind kind = memory();
  const bool shareable = kind == MemoryKind::kVirtual || kind == MemoryKind::kHostVirtual;
  return {.one_handle = shareable || kind == MemoryKind::kUnshareable, .descriptor = shareable};
}

std::vector<int> Backing::OpenTo() const {
  std::vector<int> devices;
  if (row_.opening == Opening::kReachingDevices) {
    Result<std::vector<int>> reaching = PeersThatReach(driver_, placement_.device);
    if (reaching.ok()) devices = std::move(*reaching);
  }
  if (row_.opening == Opening::kAllDevices) {
    const Result<int> count = DeviceCount(driver_);
    for (int device = 0; count.ok() && device < *count; ++device) devices.push_back(device);
  }
  devices.push_back(placement_.device);
  return devices;
}

bool Backing::OthersMayUse() const {
  if (placement_.kind != Placement::Kind::kDevice) return true;
  if (row_.opening != Opening::kUntold) return OpenTo().size() > 1;
  const Result<int> count = DeviceCount(driver_);
  return !count.ok() || *count > 1;
}

Status Backing::CanGrant(int peer) const {
  if (memory() == MemoryKind::kPinned) return CheckDeviceIsThere(driver_, peer);
  if (memory() != MemoryKind::kForeign || peer == placement_.device) return CanReach(driver_, placement_, peer);
  return Status(StatusCode::kNotSupported, row_.why_no_revoke);
}

Status Backing::CanRevoke() const {
  return row_.why_no_revoke == nullptr ? Status() : Status(StatusCode::kFailedPrecondition, row_.why_no_revoke);
}

}  // namespace commpool::internal
