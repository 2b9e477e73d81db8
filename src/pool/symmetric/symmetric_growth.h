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
  SymmetricGrowth(PoolParts& parts, Collective& collective, engine::SymmetricEngine* engine, uint64_t bytes)
      : parts_(parts), collective_(collective), engine_(engine), bytes_(bytes) {}

  Status Make() override COMMPOOL_REQUIRES(parts_.collective);
  // Windows with every communicator.
  Status Prepare() override COMMPOOL_REQUIRES(parts_.collective);
  // This rank's windows go again, and all ranks' have before any unmaps.
  void Undo() override COMMPOOL_REQUIRES(parts_.collective);
  void Adopt() override;
  Status Agree(Step step, const Status& mine) override COMMPOOL_REQUIRES(parts_.collective);

 private:
  PoolParts& parts_;
  Collective& collective_;
  engine::SymmetricEngine* const engine_ COMMPOOL_PT_GUARDED_BY(parts_.blocks.mutex());
  const uint64_t bytes_;
  NewSegments made_;  // one, between Make and Adopt
  engine::SegmentIndex index_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SYMMETRIC_GROWTH_H_
