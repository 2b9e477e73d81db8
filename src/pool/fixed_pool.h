// A fixed pool: segments that never move, grown when an allocation needs it, registered as local buffers.
#ifndef COMMPOOL_SRC_POOL_FIXED_POOL_H_
#define COMMPOOL_SRC_POOL_FIXED_POOL_H_

#include "src/pool/pool_base.h"

namespace commpool {

class FixedPool final : public PoolBase<engine::CachingEngine> {
 public:
  explicit FixedPool(PoolParts parts);

  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) override;
  Status Reserve(uint64_t bytes) override;
  Result<uint64_t> Reclaim() override { return uint64_t{0}; }  // frees take effect at once
  Result<uint64_t> Trim(uint64_t keep_bytes) override;
  uint64_t ReleaseUnused() override;
  Status Close() override;
  void Retire() override;

  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override;
  Status Deregister(ncclComm_t communicator) override;
  Status AbandonCommunicator(ncclComm_t communicator) override;

 private:
  // The free memory's answer; nothing where it has none. Errors are the request's.
  Result<std::optional<CUdeviceptr>> TryServe(uint64_t bytes, StreamKey stream, engine::Reuse reuse);
  // Makes a segment for the request, unless another thread's growth has made room meanwhile.
  Status Grow(uint64_t bytes, StreamKey stream);
  Status AddSegment(uint64_t segment_bytes) COMMPOOL_REQUIRES(growth_);
  Status CheckLimit(uint64_t segment_bytes) const;
  // The request where neither free memory nor the driver has room: rule 7, in its order.
  Result<CUdeviceptr> Search(uint64_t bytes, StreamKey stream, const Status& growth_failure);
  Result<CUdeviceptr> ServeAfterGrowth(uint64_t bytes, StreamKey stream);
  // Frees wholly free, unregistered segments, largest index first, until at most `keep_bytes` are reserved.
  Result<uint64_t> FreeUnusedSegments(uint64_t keep_bytes);
  void AfterFree() override;
};

}  // namespace commpool

#endif  // COMMPOOL_SRC_POOL_FIXED_POOL_H_
