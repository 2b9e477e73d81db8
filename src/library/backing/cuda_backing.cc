// The cuda backing: cudaMalloc memory, for devices without VMM and for programs that want exactly it.
//
// It makes no windows, because the memory has no handle for other ranks to import. A grant enables the peer's context
// for all cudaMalloc memory of the device, even that of others, so it cannot be taken back.
#include <utility>
#include <vector>

#include "src/library/backing/backing.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

class CudaSegment : public Segment {
 public:
  CudaSegment(const Backing& backing, CUdeviceptr address, uint64_t bytes) : Segment(backing, address, bytes) {}
  ~CudaSegment() override { ReleaseAndLog(); }

  void Abandon() override {
    for (PrimaryContext& peer : peers_) peer.Abandon();
    Segment::Abandon();
  }

 private:
  // The access belongs to the peer's context, and ends with it. So we retain that context here.
  Status GrantPeers(std::span<const int> peers) override {
    for (const int peer : peers) {
      PrimaryContext accessor = COMMPOOL_TRY(PrimaryContext::Retain(driver(), peer));
      const ContextGuard guard(driver(), accessor);
      const CUresult result = driver().cuda.cuCtxEnablePeerAccess(context().get(), 0);
      if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
        COMMPOOL_TRY(CheckCuda(driver(), result, {.call = "cuCtxEnablePeerAccess", .device = peer}));
      }
      peers_.push_back(std::move(accessor));
    }
    return Status();
  }
  Status ReleaseMemory() override {
    return CheckCuda(driver(), driver().cuda.cuMemFree(address()),
                     {.call = "cuMemFree", .device = context().device(), .bytes = bytes()});
  }

  std::vector<PrimaryContext> peers_;
};

class CudaBacking : public Backing {
 public:
  explicit CudaBacking(const BackingBasis& basis) : Backing(kCudaBacking, basis, kDevicePageBytes) {}

 private:
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest&) override {
    CUdeviceptr address = 0;
    COMMPOOL_TRY(CheckCuda(driver(), driver().cuda.cuMemAlloc(&address, bytes),
                           {.call = "cuMemAlloc", .device = placement().device, .bytes = bytes}));
    return std::unique_ptr<Segment>(std::make_unique<CudaSegment>(*this, address, bytes));
  }
  MemoryKind memory() const override { return MemoryKind::kLinear; }
};

}  // namespace

constinit const BackingRow kCudaBacking = {
    .kind = BackingKind::kCuda,
    .name = "cuda",
    .places = Places::kDevice,
    .make = [](BackingBasis basis, const BackingRequest&) -> Result<std::unique_ptr<Backing>> {
      return std::unique_ptr<Backing>(std::make_unique<CudaBacking>(basis));
    },
    .why_no_revoke =
        "cuCtxEnablePeerAccess opened all cudaMalloc memory of the device to the peer, and closing it would take it "
        "from others too",
    .opening = Opening::kUntold,
};

}  // namespace commpool::internal
