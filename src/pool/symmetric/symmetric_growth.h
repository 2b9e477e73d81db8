// One more segment of a symmetric pool: made on every rank before any rank calls NCCL, registered on every rank before
// any rank serves from it.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_

#include <cstdint>
#include <string>

#include "src/engine/symmetric_engine.h"
#include "src/pool/segments/growth.h"
#include "src/pool/symmetric/collective.h"

namespace commpool::internal {

// REQUIRES: the pool's collective lock, as long as it lives.
class SymmetricGrowth final : public Growth {
 public:
  SymmetricGrowth(BlockStore& blocks, SegmentStore& segments, Collective& collective, uint64_t bytes)
      : blocks_(blocks), segments_(segments), collective_(collective), bytes_(bytes) {}

  Status Make() override COMMPOOL_REQUIRES(segments_.collective());
  // Windows with every communicator.
  Status Prepare() override COMMPOOL_REQUIRES(segments_.collective());
  // This rank's windows go again, and all ranks' have before any unmaps.
  void Undo() override COMMPOOL_REQUIRES(segments_.collective());
  void Adopt() override;
  Status Agree(Step step, const Status& mine) override COMMPOOL_REQUIRES(segments_.collective());

 private:
  BlockStore& blocks_;
  SegmentStore& segments_;
  Collective& collective_;
  const uint64_t bytes_;
  NewSegments made_;  // one, between Make and Adopt
  engine::SegmentIndex index_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
