// Grows an expandable pool by pages, which move to where they are needed, so that a request fits whenever free memory
// suffices.
//
// A page moves when the work that used it is over, as an event behind it says; where it is not, the pool grows as long
// as that takes it little beyond what its program needs, and waits for a while after that.
#ifndef COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_

#include "src/engine/expandable_engine.h"
#include "src/pool/growing/grower.h"
#include "src/pool/growing/territories.h"

namespace commpool::internal {

class ExpandableGrower final : public Grower {
 public:
  ExpandableGrower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, StreamProgress& progress)
      : Grower(basis, blocks, segments, progress), territories_(basis, blocks, segments) {}

  bool MovesPages() const override { return true; }
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override;

 private:
  Status Do(const engine::GrowthStep& step, Growth& growth) override COMMPOOL_REQUIRES(segments_.growth());
  // A driver that cannot map what it has just unmapped is lost or will be: what was touched is not used again.
  void Undo(Growth& growth) override COMMPOOL_REQUIRES(segments_.growth());
  Status ReleasePages(const ReservedVector<engine::SegmentRange>& pages) COMMPOOL_REQUIRES(segments_.growth());

  engine::ExpandableEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::ExpandableEngine>();
  }

  Territories territories_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_
