// The nccl backing: ncclMemAlloc. It registers everywhere, and grants every reachable peer whether wanted or not.
//
// With NCCL_CUMEM_ENABLE=0, or where cuMemCreate is missing, ncclMemAlloc falls back to cudaMalloc without a word. The
// backing finds out when it is made, from one segment that it gives back, and again at every segment: such memory makes
// no windows and grants no peers, and the capabilities say why.
#include <atomic>
#include <utility>

#include "src/backing/backing_row.h"
#include "src/backing/device_context.h"
#include "src/backing/nccl_support.h"
#include "src/backing/owned_segment.h"
#include "src/backing/peer_access.h"
#include "src/backing/segment_size.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

Capability CanRevokeNccl() {
  return Capability::No("ncclMemAlloc grants every reachable device itself, and access is not the pool's to take");
}

constexpr const char* kFellBack =
    "ncclMemAlloc fell back to cudaMalloc here (NCCL_CUMEM_ENABLE=0, or a driver without cuMemCreate)";

// NCCL has granted every device that reaches the memory, unless it fell back.
Capability CanGrantNccl(const Driver& driver, const Placement& placement, MemoryKind memory, int peer) {
  if (memory == MemoryKind::kLinear) return Capability::No(std::string(kFellBack) + ", and granted no peer");
  return CanReach(driver, placement, peer);
}

class NcclSegment : public OwnedSegment {
 public:
  NcclSegment(const Driver& driver, std::shared_ptr<DeviceContext> context, CUdeviceptr address, uint64_t bytes,
              MemoryKind memory)
      : OwnedSegment(driver, std::move(context), address, bytes), memory_(memory) {}
  ~NcclSegment() override { ReleaseAndLog(); }

 private:
  Status GrantPeer(int peer) override {
    return RefuseUnless(CanGrantNccl(driver(), {.device = context().device()}, memory_, peer), "granting access");
  }
  Capability CanRevoke() const override { return CanRevokeNccl(); }
  Status ReleaseMemory() override {
    HearLastWords(driver());
    return CheckNccl(driver(), driver().nccl.ncclMemFree(reinterpret_cast<void*>(address())),
                     {.call = "ncclMemFree", .device = context().device(), .bytes = bytes()});
  }

  const MemoryKind memory_;
};

class NcclBacking : public Backing {
 public:
  NcclBacking(const Driver& driver, const Placement& placement, std::shared_ptr<DeviceContext> context,
              uint64_t granularity)
      : driver_(driver), placement_(placement), context_(std::move(context)), granularity_(granularity) {}

  const char* name() const override { return kNcclBacking.name; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return granularity_; }

  Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request) override {
    Result<uint64_t> rounded = RoundToGranularity(request.bytes, granularity_);
    if (!rounded.ok()) return rounded.status();
    ContextGuard guard(driver_, context_->get());  // ncclMemAlloc takes the current device
    void* pointer = nullptr;
    HearLastWords(driver_);
    const ncclResult_t result = driver_.nccl.ncclMemAlloc(&pointer, *rounded);
    Status status =
        CheckNccl(driver_, result, {.call = "ncclMemAlloc", .device = placement_.device, .bytes = *rounded});
    if (!status.ok()) return HasMemoryFor(*rounded) ? status : Status(StatusCode::kOutOfMemory, status.message());
    const MemoryKind memory = KindOf(pointer);
    memory_ = memory;
    return std::unique_ptr<Segment>(
        std::make_unique<NcclSegment>(driver_, context_, reinterpret_cast<CUdeviceptr>(pointer), *rounded, memory));
  }

  Capability CanGrant(int peer) const override { return CanGrantNccl(driver_, placement_, memory_, peer); }
  Capability CanRevoke() const override { return CanRevokeNccl(); }
  Capability CanRegisterLocal() const override { return CanRegisterLocalMemory(driver_.nccl, memory_); }
  Capability CanRegisterWindow() const override {
    Capability capability = CanRegisterWindowMemory(driver_.nccl, memory_);
    if (memory_ == MemoryKind::kLinear) capability.reason = std::string(kFellBack) + ": " + capability.reason;
    return capability;
  }

 private:
  // NCCL reports running out of memory as an unhandled CUDA error.
  bool HasMemoryFor(uint64_t bytes) const {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return driver_.cuda.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS || free_bytes >= bytes;
  }

  // Only memory of cuMemCreate has a handle to retain.
  MemoryKind KindOf(void* pointer) const {
    CUmemGenericAllocationHandle handle = 0;
    if (driver_.cuda.cuMemRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS) return MemoryKind::kLinear;
    driver_.cuda.cuMemRelease(handle);
    return MemoryKind::kVirtual;
  }

  const Driver& driver_;
  const Placement placement_;
  const std::shared_ptr<DeviceContext> context_;
  const uint64_t granularity_;
  std::atomic<MemoryKind> memory_{MemoryKind::kVirtual};  // asked about while another thread makes a segment
};

// Whether there is an ncclMemAlloc.
Capability CanMakeNccl(const Driver& driver, const DeviceInfo&, const Placement&) {
  const NcclLibrary& nccl = driver.nccl;
  if (!nccl.available()) return Capability::No("there is no NCCL: " + nccl.why_missing);
  if (nccl.ncclMemAlloc != nullptr && nccl.ncclMemFree != nullptr) return Capability::Yes();
  return Capability::No("ncclMemAlloc needs NCCL 2.19: this is " + FormatNcclVersion(nccl.version));
}

Result<std::unique_ptr<Backing>> MakeNcclBacking(const Driver& driver, const DeviceInfo& info,
                                                 const BackingRequest& request) {
  const Placement& placement = request.placement;
  Result<std::shared_ptr<DeviceContext>> context = DeviceContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  uint64_t granularity = kDevicePageBytes;
  if (info.virtual_memory) {
    Result<uint64_t> found = FindGranularity(driver, info, placement);
    if (!found.ok()) return found.status();
    granularity = *found;
  }
  auto backing = std::make_unique<NcclBacking>(driver, placement, std::move(*context), granularity);
  Result<std::unique_ptr<Segment>> probe = backing->Make({.bytes = granularity});
  if (!probe.ok() && probe.status().code() != StatusCode::kOutOfMemory) return probe.status();
  return std::unique_ptr<Backing>(std::move(backing));
}

}  // namespace

constinit const BackingRow kNcclBacking = {
    .kind = BackingKind::kNccl,
    .name = "nccl",
    .places = Places::kDevice,
    .maker = Maker::kLibrary,
    .movement = Movement::kNever,
    .can_make = CanMakeNccl,
    .make = MakeNcclBacking,
    .memory = KindOfVirtualMemory,
};

}  // namespace commpool::internal
