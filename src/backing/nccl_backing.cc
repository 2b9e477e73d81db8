#include "src/backing/nccl_backing.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/backing/plain_segment.h"
#include "src/base/bytes.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool {

namespace {

constexpr uint64_t kGranularity = 2 * kMiB;  // ncclMemAlloc rounds to the recommended granularity

class NcclBacking : public Backing {
 public:
  NcclBacking(const Driver& driver, const DeviceInfo& info, const Placement& placement, PrimaryContext context)
      : driver_(driver),
        info_(info),
        placement_(placement),
        context_(std::make_shared<PrimaryContext>(std::move(context))) {}

  const char* name() const override { return "nccl"; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return kGranularity; }

  Result<std::unique_ptr<Segment>> Make(uint64_t bytes) override {
    const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, kGranularity);
    if (bytes == 0 || !rounded) {
      return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) + " bytes cannot be made");
    }
    ContextGuard guard(driver_, *context_);  // ncclMemAlloc takes the current device
    void* pointer = nullptr;
    const ncclResult_t result = driver_.nccl.ncclMemAlloc(&pointer, *rounded);
    Status status =
        CheckNccl(driver_, result, {.call = "ncclMemAlloc", .device = placement_.device, .bytes = *rounded});
    if (!status.ok()) return IsOutOfMemory(*rounded) ? Status(StatusCode::kOutOfMemory, status.message()) : status;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    NoteKindOfMemory(pointer);
    return std::unique_ptr<Segment>(
        std::make_unique<PlainSegment>(driver_, context_, address, *rounded, FunctionsOf()));
  }

  Capability CanGrant(int peer) const override {
    if (std::ranges::find(info_.reachable_peers, peer) != info_.reachable_peers.end()) return Capability::Yes();
    Result<std::string> reason = WhyUnreachable(driver_, peer, placement_.device);
    return Capability::No(reason.ok() ? *reason : reason.status().message());
  }
  Capability CanRevoke() const override {
    return Capability::No("ncclMemAlloc grants every reachable device, and takes nothing back");
  }
  Capability CanRegisterLocal() const override { return CanMakeNccl(driver_); }
  Capability CanRegisterWindow() const override {
    if (fell_back_) {
      return Capability::No(
          "ncclMemAlloc fell back to cudaMalloc here (NCCL_CUMEM_ENABLE=0, or no cuMem support), and "
          "such memory makes no windows");
    }
    if (driver_.nccl.has_windows()) return Capability::Yes();
    return Capability::No("windows need NCCL 2.27; there is " + FormatNcclVersion(driver_.nccl.version));
  }

 private:
  // NCCL reports an unhandled CUDA error for out of memory: the driver knows which.
  bool IsOutOfMemory(uint64_t bytes) const {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    return driver_.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS && free_bytes < bytes;
  }

  // The fallback to cudaMalloc is silent: only memory made by cuMemCreate has a handle to retain.
  void NoteKindOfMemory(void* pointer) {
    CUmemGenericAllocationHandle handle = 0;
    if (driver_.cuda.cuMemRetainAllocationHandle(&handle, pointer) == CUDA_SUCCESS) {
      driver_.cuda.cuMemRelease(handle);
    } else {
      fell_back_ = true;
    }
  }

  PlainSegment::Functions FunctionsOf() const {
    const Driver* const driver = &driver_;
    const int device = placement_.device;
    return {[driver, device](CUdeviceptr address, uint64_t bytes) {
              return CheckNccl(*driver, driver->nccl.ncclMemFree(reinterpret_cast<void*>(address)),
                               {.call = "ncclMemFree", .device = device, .bytes = bytes});
            },
            [](int) { return Status(); },  // granted since it was made
            [](int) { return Status(StatusCode::kFailedPrecondition, "ncclMemAlloc memory cannot be revoked"); }};
  }

  const Driver& driver_;
  const DeviceInfo info_;
  const Placement placement_;
  const std::shared_ptr<const PrimaryContext> context_;
  std::atomic<bool> fell_back_{false};
};

}  // namespace

Capability CanMakeNccl(const Driver& driver) {
  if (!driver.nccl.available()) return Capability::No("there is no NCCL here: " + driver.nccl.why_missing);
  if (driver.nccl.has_local_registration()) return Capability::Yes();
  return Capability::No("ncclMemAlloc needs NCCL 2.19; there is " + FormatNcclVersion(driver.nccl.version));
}

Result<std::unique_ptr<Backing>> MakeNcclBacking(const Driver& driver, const DeviceInfo& info,
                                                 const Placement& placement) {
  Result<PrimaryContext> context = PrimaryContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Backing>(std::make_unique<NcclBacking>(driver, info, placement, std::move(*context)));
}

}  // namespace commpool
