// A fixed pool: segments that never move, grown when an allocation needs it, registered as local buffers.
#ifndef COMMPOOL_SRC_POOL_FIXED_POOL_H_
#define COMMPOOL_SRC_POOL_FIXED_POOL_H_

#include "src/pool/growing_pool.h"

namespace commpool::internal {

class FixedPool final : public GrowingPool<engine::CachingEngine> {
 public:
  explicit FixedPool(PoolParts parts);

  Status Close() override;

  Status RegisterWith(ncclComm_t communicator) override;
  Result<uint64_t> RegisterPending() override;
  Status Deregister(ncclComm_t communicator) override;
  Status AbandonCommunicator(ncclComm_t communicator) override;

 private:
  // OK where no live graph pins registered segments.
  Status CheckUnpinned() const;
  Status Grow(uint64_t bytes, StreamKey stream, Effort effort) override;
  // Gives segments that stand free back, the longest unused first, where the pool would hold more than its program ever
  // used and some slack. Never waits long: what the device may still use stays.
  Status MakeWay(uint64_t requested, uint64_t segment_bytes) COMMPOOL_REQUIRES(growth_);
  // What reserve() made serves blocks of every size: that is what it was asked for. 0: nothing is reserved any more.
  void CountReserved(uint64_t bytes) COMMPOOL_REQUIRES(growth_);
  Status AddSegment(const engine::Grow& grow) COMMPOOL_REQUIRES(growth_);
  // Those of them that are idle.
  Result<uint64_t> Free(const std::vector<engine::SegmentIndex>& chosen) COMMPOOL_REQUIRES(growth_);
  using GrowingPool::Free;
  // Frees wholly free, unregistered segments, largest index first.
  Result<uint64_t> GiveBack(uint64_t keep_bytes, Wait wait) override;

  uint64_t reserved_by_name_ COMMPOOL_GUARDED_BY(growth_) = 0;  // what reserve() made since memory was last given back
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_FIXED_POOL_H_
