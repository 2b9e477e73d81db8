// The nccl backing: ncclMemAlloc. It registers everywhere, and grants every reachable peer, even unwanted ones.
//
// With NCCL_CUMEM_ENABLE=0, or without cuMemCreate, ncclMemAlloc silently falls back to cudaMalloc. The backing checks
// this with one segment when it is made, and again at every segment. Such memory makes no windows and grants no peers;
// the capabilities say why.
#include <atomic>
#include <utility>

#include "src/library/backing/backing.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

constexpr const char* kFellBack =
    "ncclMemAlloc fell back to cudaMalloc here (NCCL_CUMEM_ENABLE=0, or a driver without cuMemCreate)";

class NcclBacking : public Backing {
 public:
  NcclBacking(const BackingBasis& basis, uint64_t granularity) : Backing(kNcclBacking, basis, granularity) {}

  // NCCL has granted every device that can reach the memory, unless it fell back.
  Status CanGrant(int peer) const override {
    if (memory_ != MemoryKind::kLinear) return Backing::CanGrant(peer);
    return NotSupported(kFellBack, ", and granted no peer");
  }
  Status CanRegisterWindow() const override {
    const Status status = Backing::CanRegisterWindow();
    return memory_ == MemoryKind::kLinear ? status.under(kFellBack) : status;
  }

 private:
  // ncclMemAlloc uses the current device.
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest&) override {
    void* pointer = nullptr;
    NoteOldErrorText(driver());
    ncclResult_t result = driver().nccl.ncclMemAlloc(&pointer, bytes);
    // It may have failed for memory that somebody has given back since.
    if (result != ncclSuccess && HasMemoryFor(bytes)) result = driver().nccl.ncclMemAlloc(&pointer, bytes);
    Status status = CheckNccl(driver(), result, {.call = "ncclMemAlloc", .device = placement().device, .bytes = bytes});
    if (!status.ok()) return HasMemoryFor(bytes) ? status : OutOfMemory(status.message());
    const bool has_handle = PhysicalMemory::At(driver(), reinterpret_cast<CUdeviceptr>(pointer), 0).valid();
    memory_ = has_handle ? MemoryKind::kVirtual : MemoryKind::kLinear;
    auto free = [&driver = driver(), pointer, bytes, device = placement().device] {
      NoteOldErrorText(driver);
      return CheckNccl(driver, driver.nccl.ncclMemFree(pointer),
                       {.call = "ncclMemFree", .device = device, .bytes = bytes});
    };
    return std::unique_ptr<Segment>(std::make_unique<PlainSegment>(*this, pointer, bytes, std::move(free)));
  }
  MemoryKind memory() const override { return memory_; }

  // NCCL reports "out of memory" as an unhandled CUDA error, so we ask how much memory is left.
  bool HasMemoryFor(uint64_t bytes) const {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return driver().cuda.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS || free_bytes >= bytes;
  }

  std::atomic<MemoryKind> memory_{MemoryKind::kVirtual};  // read while another thread makes a segment
};

// Whether this NCCL has ncclMemAlloc.
Status CanMakeNccl(const Driver& driver, const DeviceInfo&, const Placement&) {
  const NcclLibrary& nccl = driver.nccl;
  if (!nccl.available()) return NotSupported("there is no NCCL: ", nccl.why_missing);
  if (nccl.ncclMemAlloc != nullptr && nccl.ncclMemFree != nullptr) return Status();
  return NotSupported("ncclMemAlloc needs NCCL 2.19: this is ", FormatNcclVersion(nccl.version));
}

Result<std::unique_ptr<Backing>> MakeNcclBacking(BackingBasis basis, const BackingRequest&) {
  uint64_t granularity = kDevicePageBytes;
  if (basis.info.virtual_memory) {
    granularity = COMMPOOL_TRY(FindGranularity(basis.driver, basis.info, basis.placement));
  }
  auto backing = std::make_unique<NcclBacking>(basis, granularity);
  Result<std::unique_ptr<Segment>> probe = backing->Make({.bytes = granularity});
  if (!probe.ok() && probe.status().code() != StatusCode::kOutOfMemory) return probe.status();
  return std::unique_ptr<Backing>(std::move(backing));
}

}  // namespace

Status CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_local_registration()) return NotSupported(nccl.WhyNoLocalRegistration());
  if (memory != MemoryKind::kHostVirtual && memory != MemoryKind::kPinned) return Status();
  return NotSupported(
      "NCCL's collectives use no registered host memory: 2.28 takes it and does not use it, 2.30 skips it");
}

Status CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory) {
  if (!nccl.has_windows()) return NotSupported(nccl.WhyNoWindows());
  switch (memory) {
    case MemoryKind::kVirtual:
      return Status();
    case MemoryKind::kHostVirtual:
      if (nccl.has_host_windows()) return Status();
      return NotSupported("windows over host memory need NCCL 2.30.3: this is ", FormatNcclVersion(nccl.version));
    case MemoryKind::kUnshareable:
      return NotSupported("the device makes no shareable handles, and other ranks import a window's handle");
    case MemoryKind::kLinear:
      return NotSupported(
          "cudaMalloc memory has no handle that another rank could import: windows need the vmm or the nccl backing");
    case MemoryKind::kForeign:
      return NotSupported(
          "a window needs one cuMemCreate handle a segment, which a user's functions do not promise: windows need the "
          "vmm or the nccl backing");
    case MemoryKind::kPinned:
      return NotSupported("pinned memory of the host has no handle to import: asked for, or all that the driver maps");
  }
  return NotSupported("unknown memory");
}

constinit const BackingRow kNcclBacking = {
    .kind = BackingKind::kNccl,
    .name = "nccl",
    .places = Places::kDevice,
    .can_make = CanMakeNccl,
    .make = MakeNcclBacking,
    .why_no_revoke = "ncclMemAlloc grants every reachable device itself, and access is not the pool's to take",
    .opening = Opening::kReachingDevices,
};

}  // namespace commpool::internal
