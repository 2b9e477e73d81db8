#include "src/backing/cuda_backing.h"

#include <utility>

#include "src/backing/plain_segment.h"
#include "src/base/bytes.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool {

namespace {

constexpr uint64_t kGranularity = 2 * kMiB;  // the page in which cudaMalloc takes memory from the device

class CudaBacking : public Backing {
 public:
  CudaBacking(const Driver& driver, const Placement& placement, PrimaryContext context)
      : driver_(driver), placement_(placement), context_(std::make_shared<PrimaryContext>(std::move(context))) {}

  const char* name() const override { return "cuda"; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return kGranularity; }

  Result<std::unique_ptr<Segment>> Make(uint64_t bytes) override {
    const std::optional<uint64_t> rounded = CheckedRoundUp(bytes, kGranularity);
    if (bytes == 0 || !rounded) {
      return Status(StatusCode::kInvalidArgument, "a segment of " + std::to_string(bytes) + " bytes cannot be made");
    }
    ContextGuard guard(driver_, *context_);
    CUdeviceptr address = 0;
    Status status = CheckCuda(driver_, driver_.cuda.cuMemAlloc(&address, *rounded),
                              {.call = "cuMemAlloc", .device = placement_.device, .bytes = *rounded});
    if (!status.ok()) return status;
    return std::unique_ptr<Segment>(
        std::make_unique<PlainSegment>(driver_, context_, address, *rounded, FunctionsOf()));
  }

  Capability CanGrant(int peer) const override {
    Result<std::string> reason = WhyUnreachable(driver_, peer, placement_.device);
    if (!reason.ok()) return Capability::No(reason.status().message());
    return reason->empty() ? Capability::Yes() : Capability::No(*reason);
  }
  Capability CanRevoke() const override {
    return Capability::No(
        "access to cudaMalloc memory is enabled for the whole process (cudaDeviceEnablePeerAccess), so "
        "one pool cannot take it back");
  }
  Capability CanRegisterLocal() const override {
    return driver_.nccl.has_local_registration() ? Capability::Yes()
                                                 : Capability::No("ncclCommRegister needs NCCL 2.19");
  }
  Capability CanRegisterWindow() const override {
    return Capability::No(
        "cudaMalloc memory has no handle that another rank could import: windows need the vmm or nccl "
        "backing");
  }

 private:
  PlainSegment::Functions FunctionsOf() const {
    const Driver* const driver = &driver_;
    const int device = placement_.device;
    const std::shared_ptr<const PrimaryContext> owner = context_;
    return {[driver, device](CUdeviceptr address, uint64_t bytes) {
              return CheckCuda(*driver, driver->cuda.cuMemFree(address),
                               {.call = "cuMemFree", .device = device, .bytes = bytes});
            },
            [driver, owner](int peer) { return EnablePeer(*driver, *owner, peer); },
            [](int) { return Status(StatusCode::kFailedPrecondition, "cudaMalloc memory cannot be revoked"); }};
  }

  // It is the peer's context that gets access to the owner's memory. Enabled before is as good.
  static Status EnablePeer(const Driver& driver, const PrimaryContext& owner, int peer) {
    Result<PrimaryContext> context = PrimaryContext::Retain(driver, peer);
    if (!context.ok()) return context.status();
    ContextGuard guard(driver, *context);
    const CUresult result = driver.cuda.cuCtxEnablePeerAccess(owner.get(), 0);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return Status();
    return CheckCuda(driver, result, {.call = "cuCtxEnablePeerAccess", .device = peer});
  }

  const Driver& driver_;
  const Placement placement_;
  const std::shared_ptr<const PrimaryContext> context_;
};

}  // namespace

Result<std::unique_ptr<Backing>> MakeCudaBacking(const Driver& driver, const DeviceInfo&, const Placement& placement) {
  Result<PrimaryContext> context = PrimaryContext::Retain(driver, placement.device);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Backing>(std::make_unique<CudaBacking>(driver, placement, std::move(*context)));
}

}  // namespace commpool
