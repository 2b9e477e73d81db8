// Grows a fixed pool by segments that never move, and gives whole segments back.
#ifndef COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_

#include <memory>
#include <optional>
#include <vector>

#include "src/engine/caching_engine.h"
#include "src/engine/fixed_slack.h"
#include "src/pool/blocks/stream_progress.h"
#include "src/pool/growing/grower.h"
#include "src/pool/pool_parts.h"

namespace commpool::internal {

// The engine of a fixed pool; segments are multiples of `granularity`.
std::unique_ptr<engine::CachingEngine> MakeFixedEngine(const PoolConfiguration& configuration, uint64_t granularity);

class FixedGrower final : public Grower {
 public:
  FixedGrower(PoolParts& parts, StreamProgress& progress, engine::CachingEngine& engine)
      : parts_(parts), progress_(progress), engine_(&engine) {}

  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) override;
  // Unpinned segments, the largest index first.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override;

 private:
  // Gives segments that stand free back, the longest unused first, where the pool would hold more than its program ever
  // used and some slack. Never waits long: what the device may still use stays.
  Status MakeWay(uint64_t requested, uint64_t segment_bytes, Wait wait) COMMPOOL_REQUIRES(parts_.segments.growth());
  // By how much the pool would hold too much with such a segment.
  uint64_t Excess(uint64_t requested, uint64_t segment_bytes) COMMPOOL_REQUIRES(parts_.segments.growth());
  // Whether a segment that stands free may be cut for a block that is much smaller: where none can be made instead.
  engine::CachingEngine::Cutting CuttingFor(Effort effort) COMMPOOL_REQUIRES(parts_.segments.growth());
  // Whether memory is free that the request passed by: of other streams, or of a segment that it would cut.
  bool ServesFreely(uint64_t requested, StreamKey stream) COMMPOOL_REQUIRES(parts_.segments.growth());
  // What reserve() made serves blocks of every size: that is what it was asked for. 0: nothing is reserved any more.
  void CountReserved(uint64_t bytes) COMMPOOL_REQUIRES(parts_.segments.growth());
  Status AddSegment(const engine::Grow& grow, std::optional<StreamKey> stream)
      COMMPOOL_REQUIRES(parts_.segments.growth());

  PoolParts& parts_;
  StreamProgress& progress_;
  engine::CachingEngine* const engine_ COMMPOOL_PT_GUARDED_BY(parts_.blocks.mutex());
  // What reserve() made since memory was last given back.
  uint64_t reserved_by_name_ COMMPOOL_GUARDED_BY(parts_.segments.growth()) = 0;
  engine::FixedSlack slack_ COMMPOOL_GUARDED_BY(parts_.segments.growth());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_
