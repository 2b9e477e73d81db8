// The cuda backing: cudaMalloc memory, for devices without VMM and for programs that want exactly it.
//
// It makes no windows: the memory has no handle that other ranks could import. A grant enables the peer's context for
// all cudaMalloc memory of the device, this pool's and everybody else's, and so cannot be taken back.
#include <utility>
#include <vector>

#include "src/backing/backing_row.h"
#include "src/backing/device_context.h"
#include "src/backing/nccl_support.h"
#include "src/backing/owned_segment.h"
#include "src/backing/peer_access.h"
#include "src/backing/segment_size.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

Capability CanRevokeLinear() {
  return Capability::No(
      "cuCtxEnablePeerAccess opened all cudaMalloc memory of the device to the peer, and closing it would take it from "
      "others too");
}

class CudaSegment : public OwnedSegment {
 public:
  CudaSegment(const Driver& driver, std::shared_ptr<DeviceContext> context, CUdeviceptr address, uint64_t bytes)
      : OwnedSegment(driver, std::move(context), address, bytes) {}
  ~CudaSegment() override { ReleaseAndLog(); }

  void Abandon() override {
    for (PrimaryContext& peer : peers_) peer.Abandon();
    OwnedSegment::Abandon();
  }

 private:
  // The peer's context is what gets the access, and loses it when its last owner lets go: so it is retained here.
  Status GrantPeer(int peer) override {
    Status status = RefuseUnless(CanReach(driver(), {.device = context().device()}, peer), "granting access");
    if (!status.ok()) return status;
    Result<PrimaryContext> accessor = PrimaryContext::Retain(driver(), peer);
    if (!accessor.ok()) return accessor.status();
    {
      ContextGuard guard(driver(), *accessor);
      const CUresult result = driver().cuda.cuCtxEnablePeerAccess(context().get(), 0);
      if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        status = CheckCuda(driver(), result, {.call = "cuCtxEnablePeerAccess", .device = peer});
      }
    }
    if (status.ok()) peers_.push_back(std::move(*accessor));
    return status;
  }
  Capability CanRevoke() const override { return CanRevokeLinear(); }
  Status ReleaseMemory() override {
    return CheckCuda(driver(), driver().cuda.cuMemFree(address()),
                     {.call = "cuMemFree", .device = context().device(), .bytes = bytes()});
  }

  std::vector<PrimaryContext> peers_;
};

class CudaBacking : public Backing {
 public:
  CudaBacking(const Driver& driver, const Placement& placement, std::shared_ptr<DeviceContext> context)
      : driver_(driver), placement_(placement), context_(std::move(context)) {}

  const char* name() const override { return kCudaBacking.name; }
  const Placement& placement() const override { return placement_; }
  uint64_t granularity() const override { return kDevicePageBytes; }

  Result<std::unique_ptr<Segment>> Make(const SegmentRequest& request) override {
    Result<uint64_t> rounded = RoundToGranularity(request.bytes, granularity());
    if (!rounded.ok()) return rounded.status();
    ContextGuard guard(driver_, context_->get());
    CUdeviceptr address = 0;
    Status status = CheckCuda(driver_, driver_.cuda.cuMemAlloc(&address, *rounded),
                              {.call = "cuMemAlloc", .device = placement_.device, .bytes = *rounded});
    if (!status.ok()) return status;
    return std::unique_ptr<Segment>(std::make_unique<CudaSegment>(driver_, context_, address, *rounded));
  }

  Capability CanGrant(int peer) const override { return CanReach(driver_, placement_, peer); }
  Capability CanRevoke() const override { return CanRevokeLinear(); }
  Capability CanRegisterLocal() const override { return CanRegisterLocalMemory(driver_.nccl, MemoryKind::kLinear); }
  Capability CanRegisterWindow() const override { return CanRegisterWindowMemory(driver_.nccl, MemoryKind::kLinear); }

 private:
  const Driver& driver_;
  const Placement placement_;
  const std::shared_ptr<DeviceContext> context_;
};

Result<std::unique_ptr<Backing>> MakeCudaBacking(const Driver& driver, const DeviceInfo&,
                                                 const BackingRequest& request) {
  Result<std::shared_ptr<DeviceContext>> context = DeviceContext::Retain(driver, request.placement.device);
  if (!context.ok()) return context.status();
  return std::unique_ptr<Backing>(std::make_unique<CudaBacking>(driver, request.placement, std::move(*context)));
}

}  // namespace

constinit const BackingRow kCudaBacking = {
    .kind = BackingKind::kCuda,
    .name = "cuda",
    .places = Places::kDevice,
    .maker = Maker::kLibrary,
    .movement = Movement::kNever,
    .can_make = [](const Driver&, const DeviceInfo&, const Placement&) { return Capability::Yes(); },
    .make = MakeCudaBacking,
    .memory = [](const DeviceInfo&, const Placement&) { return MemoryKind::kLinear; },
};

}  // namespace commpool::internal
