// CachingEngine: the engine of fixed pools, and the base of the expandable engine. It decides which block serves a
// request, and when to split and merge. BlockStore (src/library/pool/blocks) owns it and makes every call.
//
// Pure: it calls nothing outside this folder. Where nothing fits it returns Grow, and the pool makes the segment
// outside its lock. Not thread-safe: the pool's lock guards it.
//
// A free block remembers which streams used it last. The same stream takes it again at once. Another stream gets it
// together with the uses that it must wait for, and only where the request allows a wait. With OwnReuse::kOncePassed a
// block serves nobody, not even that stream, before all its uses are over.
#pragma once

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/engine.h"
#include "src/library/engine/expansion.h"
#include "src/library/engine/free_index.h"
#include "src/library/engine/size_policy.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

class CachingEngine : public Engine {
 public:
  explicit CachingEngine(const EngineOptions& options)
      : Engine(options, options.own_reuse == OwnReuse::kAtOnce ? MergePolicy::kCompatible : MergePolicy::kSameUses,
               options.choice) {}

  // kInvalidArgument for zero bytes and for sizes that overflow when rounded up. A graph's part is served from its own
  // free memory, then from the pool's idle memory.
  Result<Outcome> Allocate(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // Allocate for Reuse::kSameStream and the common part, as most allocations ask. There are no waits then, so no list
  // of waits is made, which is faster. Returns 0 bytes where the pool must grow, and where Allocate returns an error.
  SegmentRange AllocateOwn(uint64_t bytes, StreamKey stream);

  // Whether the program reserved memory by name. Such memory serves blocks of every size, and is not released for
  // growth. Without it small blocks lie among large ones only where the pool should not grow, as in a capture.
  void SetReserved(bool reserved) { reserved_ = reserved; }

  // The segment that Allocate would ask for; 0 bytes where free memory is enough.
  Result<Grow> GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // How to make room for a request that Allocate answered with Grow. The plan makes one segment, and releases idle
  // segments of at most its size in all. So the reserved bytes never fall, and a program that repeats its steps stops
  // growing. `request.asked` becomes true where the plan tells the pool to ask or to wait.
  virtual Result<GrowthPlan> PlanGrowth(GrowthRequest& request);
  // Call it before the steps of a plan, unless the plan asks to plan again. False where somebody got memory that the
  // plan counts on: then plan again.
  virtual bool Claim(const Expansion&) { return true; }
  // Call it after the steps.
  virtual void Complete(const Expansion&) {}

  // kNotFound where no live block starts at `address` (foreign, or freed already). A block of a graph's part stays the
  // part's, which reuses it only in its own stream's order, and needs no fences.
  Result<Freed> Free(Address address, Reasons also = 0) override;

  // The wholly free segments, the one unused for longest first.
  std::vector<SegmentIndex> LongestUnusedSegments() const;

 private:
  // Merges free memory that the stream may take at once.
  void Gather(StreamKey stream, Part part) {
    if (own_reuse() == OwnReuse::kAtOnce) own_heap().Unify(stream, part);
  }
  // Free memory that may serve a request.
  Reuse ReuseFor(Reuse asked) const { return own_reuse() == OwnReuse::kOncePassed ? Reuse::kIdle : asked; }

  // A block cut from free memory; null where none is large enough.
  Block* Take(const Fit& fit) {
    Block* const block = own_heap().Take(fit);
    return block != nullptr ? block : TakeGathered(fit);
  }
  // Where nothing fits at once: merges the stream's memory, and then takes a small block from among large ones where
  // the pool should not grow.
  Block* TakeGathered(Fit fit);

  // The steps that release idle segments for a new one of `bytes`.
  std::vector<GrowthStep> MakeWay(const GrowthRequest& request, uint64_t bytes);

  bool reserved_ = false;
};

}  // namespace commpool::internal::engine
