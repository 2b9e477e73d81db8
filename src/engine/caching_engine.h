// The engine of fixed pools, and the base of the expandable ones': which block serves a request, when to split and when
// to merge.
//
// Pure: it calls no driver and nothing else outside this folder. Where nothing fits it returns Grow, and the pool
// makes the segment outside its lock. Not thread-safe: the pool's lock guards it.
//
// A free block remembers the streams that used it last. The same stream takes it again at once; another stream gets it
// together with the uses that it must wait for, and only where the request says that waiting is welcome.
#ifndef COMMPOOL_SRC_ENGINE_CACHING_ENGINE_H_
#define COMMPOOL_SRC_ENGINE_CACHING_ENGINE_H_

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/engine.h"
#include "src/engine/free_index.h"
#include "src/engine/growth_plan.h"
#include "src/engine/size_policy.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

class CachingEngine : public Engine {
 public:
  explicit CachingEngine(const EngineOptions& options) : Engine(options, MergePolicy::kCompatible) {}

  // kInvalidArgument for zero bytes, and for sizes that overflow when rounded up. A graph's part is served from its own
  // free memory, then from idle memory of the pool.
  Result<Outcome> Allocate(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // The same for Reuse::kSameStream and the common part, without a list of waits, for there are none: what most
  // allocations ask. No bytes where the pool has to grow.
  Result<SegmentRange> AllocateOwn(uint64_t bytes, StreamKey stream);

  // Whether memory was made by name: it serves blocks of every size, and makes no way. Elsewhere small blocks lie among
  // large ones only where the pool should not grow, as in a capture.
  void SetReserved(bool reserved) { reserved_ = reserved; }

  // The segment that Allocate would ask for; 0 bytes where free memory suffices.
  Result<Grow> GrowthFor(uint64_t bytes, StreamKey stream, Reuse reuse, Part part = kCommonPart);

  // How to make room for a request that Allocate answered with Grow: by a segment, in whose place free ones go that are
  // no larger together. So what is reserved never falls by that, and a program whose steps are alike comes to rest.
  // Notes in the request what the pool was told to ask.
  virtual Result<GrowthPlan> PlanGrowth(GrowthRequest& request);
  // Before the steps of a plan, unless it is planned again after them. False where something that it counts on was
  // served to somebody else since: then plan again.
  virtual bool Claim(const GrowthPlan&) { return true; }
  // After them.
  virtual void Settle(const GrowthPlan&) {}

  // kNotFound where no live block starts at `address` (foreign, or freed already).
  Result<Freed> Free(Address address) override;
  // The same for a block of a graph's part: it stays the part's, and is reused in its own stream's order alone.
  Result<Freed> FreeInPart(Address address);
  // Once the capture has ended, and once its graph is gone.
  void ClosePart(Part part) { heap().ClosePart(part); }
  void ReleasePart(Part part) { heap().ReleasePart(part); }

  // The block serves nobody until every stream has its fence: each was owed.
  bool AttachFence(Address address, StreamKey stream, Fence fence) override;

  // The streams that may still use free memory.
  ReservedVector<StreamKey> StreamsInUse() const;
  // The wholly free segments, the one that was left alone for longest first.
  std::vector<SegmentIndex> LongestUnusedSegments() const;

  // The part of the live block at the address; the whole pool's where there is none.
  Part PartOf(Address address) const;

 private:
  Choice ChoiceFor(Space space) const { return space == Space::kLarge ? options().choice : Choice::kBestFit; }

  // Cut from free memory, merged and of the other space where that is needed; null where there is none.
  Block* Take(Fit fit);

  // The segments that go for one of so many bytes.
  std::vector<GrowthStep> MakeWay(const GrowthRequest& request, uint64_t bytes);

  bool reserved_ = false;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_CACHING_ENGINE_H_
