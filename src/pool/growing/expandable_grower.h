// Grows an expandable pool by pages, which move to where they are needed, so that a request fits whenever free memory
// suffices.
//
// Growth plans in the engine under the pool's lock, then makes, unmaps and maps pages outside it, and only then lets
// the engine serve from them. A page moves when the work that used it is over, as an event behind it says; where it is
// not, the pool grows as long as that takes it little beyond what its program needs, and waits for a while after that.
#ifndef COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_

#include <memory>
#include <optional>
#include <vector>

#include "src/engine/expandable_engine.h"
#include "src/pool/blocks/stream_progress.h"
#include "src/pool/growing/grower.h"
#include "src/pool/growing/territories.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

std::unique_ptr<engine::ExpandableEngine> MakeExpandableEngine(const PoolConfiguration& configuration,
                                                               uint64_t granularity);

class ExpandableGrower final : public Grower {
 public:
  ExpandableGrower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, StreamProgress& progress)
      : basis_(basis),
        blocks_(blocks),
        segments_(segments),
        progress_(progress),
        territories_(basis, blocks, segments) {}

  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) override;
  bool MovesPages() const override { return true; }
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override;

 private:
  struct Claimed {
    engine::Expansion plan;
    Room room;  // for what it makes
  };
  using OptionalPlan = std::optional<engine::Expansion>;

  // The plan that fits into what may still be reserved, claimed in the engine; null where free memory suffices by now.
  Result<std::optional<Claimed>> PlanAndClaim(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part)
      COMMPOOL_REQUIRES(segments_.growth());
  // The plan that costs least: new pages while the pool stays within its slack, else pages that move.
  Result<OptionalPlan> PlanFor(uint64_t bytes, StreamKey stream, Effort effort) COMMPOOL_REQUIRES(segments_.growth());
  Result<OptionalPlan> Plan(uint64_t bytes, StreamKey stream, engine::Donors donors,
                            engine::Part part = engine::kCommonPart) COMMPOOL_REQUIRES(segments_.growth());
  // Whether making so many bytes for the request is allowed, and better than moving pages.
  bool GrowsCheaply(uint64_t requested, uint64_t made) COMMPOOL_REQUIRES(segments_.growth());
  Status ReleasePages(const ReservedVector<engine::SegmentRange>& pages) COMMPOOL_REQUIRES(segments_.growth());

  engine::ExpandableEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) {
    return blocks_.engine<engine::ExpandableEngine>();
  }

  PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  StreamProgress& progress_;
  Territories territories_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_EXPANDABLE_GROWER_H_
