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
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

// The engine of a fixed pool; segments are multiples of `granularity`.
std::unique_ptr<engine::CachingEngine> MakeFixedEngine(const PoolConfiguration& configuration, uint64_t granularity);

class FixedGrower final : public Grower {
 public:
  FixedGrower(const PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, StreamProgress& progress)
      : basis_(basis), blocks_(blocks), segments_(segments), progress_(progress) {}

  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part) override;
  // Unpinned segments, the largest index first.
  Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) override;

 private:
  // Gives segments that stand free back, the longest unused first, where the pool would hold more than its program ever
  // used and some slack. Never waits long: what the device may still use stays.
  Status MakeWay(uint64_t requested, uint64_t segment_bytes, Wait wait) COMMPOOL_REQUIRES(segments_.growth());
  // By how much the pool would hold too much with such a segment.
  uint64_t Excess(uint64_t requested, uint64_t segment_bytes) COMMPOOL_REQUIRES(segments_.growth());
  // Whether a segment that stands free may be cut for a block that is much smaller: where none can be made instead.
  engine::CachingEngine::Cutting CuttingFor(Effort effort) COMMPOOL_REQUIRES(segments_.growth());
  // Whether memory is free that the request passed by: of other streams, or of a segment that it would cut.
  bool ServesFreely(uint64_t requested, StreamKey stream) COMMPOOL_REQUIRES(segments_.growth());
  // What reserve() made serves blocks of every size: that is what it was asked for. 0: nothing is reserved any more.
  void CountReserved(uint64_t bytes) COMMPOOL_REQUIRES(segments_.growth());
  Status AddSegment(const engine::Grow& grow, std::optional<StreamKey> stream) COMMPOOL_REQUIRES(segments_.growth());

  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

  const PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  StreamProgress& progress_;
  // What reserve() made since memory was last given back.
  uint64_t reserved_by_name_ COMMPOOL_GUARDED_BY(segments_.growth()) = 0;
  engine::FixedSlack slack_ COMMPOOL_GUARDED_BY(segments_.growth());
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_FIXED_GROWER_H_
