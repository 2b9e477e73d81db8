// How a pool that may grow inside an allocation makes room, and gives memory back: it carries out what its engine plans
// (engine/growth_plan.h), fixed pools with whole segments, expandable ones with pages that move.
#ifndef COMMPOOL_SRC_POOL_GROWING_GROWER_H_
#define COMMPOOL_SRC_POOL_GROWING_GROWER_H_

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/engine/caching_engine.h"
#include "src/pool/blocks/stream_progress.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

using engine::Effort;

// Whether memory that streams may still use is waited for.
enum class Wait { kNo, kYes };

class Grower {
 public:
  Grower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, StreamProgress& progress)
      : basis_(basis), blocks_(blocks), segments_(segments), progress_(progress) {}
  virtual ~Grower() = default;

  // Makes room for the request, unless another thread's growth has meanwhile. kOutOfMemory where there is none. What
  // is made for a graph's part is the graph's; nothing moves and nothing goes then.
  //
  // The engine plans under the pool's lock; outside it the steps are carried out; then the engine serves from what
  // came. Where a step fails those before it are taken back.
  Status Grow(uint64_t bytes, StreamKey stream, Effort effort, engine::Part part = engine::kCommonPart);
  // Whether growth under pressure takes the pool's own free memory along: then it is not given back first.
  virtual bool MovesPages() const { return false; }
  // Gives free memory back to the driver until at most `keep_bytes` are reserved; returns the bytes given back.
  virtual Result<uint64_t> Release(uint64_t keep_bytes, Wait wait) = 0;

 protected:
  // A growth that is under way.
  struct Growth {
    engine::GrowthRequest request;
    engine::GrowthPlan plan = {};
    ReservedDeque<PhysicalMemory> in_hand = {};  // pages without an address
    size_t unmapped = 0;                         // pages that were taken out of theirs
  };

  // A step of the plan. The context of the pool's device is current.
  virtual Status Do(const engine::GrowthStep& step, Growth& growth) COMMPOOL_REQUIRES(segments_.growth()) = 0;
  // After a step that failed: takes back those before it, and the claim.
  virtual void Undo(Growth&) COMMPOOL_REQUIRES(segments_.growth()) {}

  engine::CachingEngine& engine() COMMPOOL_REQUIRES(blocks_.mutex()) { return blocks_.engine<engine::CachingEngine>(); }

  PoolBasis& basis_;
  BlockStore& blocks_;
  SegmentStore& segments_;
  StreamProgress& progress_;

 private:
  // What the pool knows that the engine does not.
  void Describe(engine::GrowthRequest& request) const COMMPOOL_REQUIRES(segments_.growth());
  // Plans, and carries the plan out. Whether that was all.
  Result<bool> GrowOnce(Growth& growth) COMMPOOL_REQUIRES(segments_.growth());
  Status CarryOut(Growth& growth) COMMPOOL_REQUIRES(segments_.growth());
};

// Fixed pools grow by whole segments, expandable ones by pages that move.
std::unique_ptr<Grower> MakeFixedGrower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments,
                                        StreamProgress& progress);
std::unique_ptr<Grower> MakeExpandableGrower(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments,
                                             StreamProgress& progress);

// The options of a growing pool's engine; segments and pages are multiples of `granularity`.
engine::EngineOptions GrowingEngineOptions(const PoolConfiguration& configuration, uint64_t granularity);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_GROWER_H_
