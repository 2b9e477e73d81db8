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
#include <memory>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/engine.h"
#include "src/engine/free_index.h"
#include "src/engine/growth_plan.h"
#include "src/engine/ledger.h"
#include "src/engine/size_policy.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

class CachingEngine : public Engine {
 public:
  explicit CachingEngine(const EngineOptions& options);

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
  void ReleasePart(Part part) { ledger().ReleasePart(part); }

  // Adds the fence of one of `Freed::streams_to_fence` to the block just freed. The block serves nobody until every
  // such stream has its fence, so the pool may record them outside its lock.
  void AttachFence(Address address, StreamKey stream, Fence fence) override;

  // Notes that `stream` uses a live block too. kNotFound as for Free.
  Status RecordStream(Address address, StreamKey stream) override;

  // The fence's event has completed: its uses are over, and neighbours may merge.
  void FencePassed(Fence fence) override;
  // The device was synchronised after `moment` = Now(): nobody uses a block that was freed before it.
  Moment Now() const override { return ledger().Now(); }
  void DeviceIdle(Moment moment) override;
  void StreamIdle(StreamKey stream, Moment moment) { ledger().StreamIdle(stream, moment); }
  // The streams that may still use free memory.
  ReservedVector<StreamKey> StreamsInUse() const;
  // The stream's work is done and its key will mean another stream: no block, live or free, waits for it any more.
  void ForgetStream(StreamKey stream) override;
  // Fences that have not passed, oldest first: also those whose blocks were handed out since, so that the pool gives
  // their events back.
  ReservedVector<Fence> PendingFences() const override;
  // Whether there are any: one load.
  bool HasPendingFences() const override { return ledger_.HasPendingFences(); }

  SegmentIndex AddSegment(const SegmentRange& range, Space space = Space::kLarge, Part part = kCommonPart) override;
  // Whether a segment has neither live blocks nor streams that may still use one.
  bool IsIdle(SegmentIndex segment) const override;
  // REQUIRES: IsIdle(segment).
  SegmentRange RemoveSegment(SegmentIndex segment) override;
  // Segments without a live block, and without one that still lacks a fence; smallest index first.
  std::vector<SegmentIndex> WhollyFreeSegments() const override;
  bool IsWhollyFree(SegmentIndex segment) const;
  // The same, the one that was left alone for longest first.
  std::vector<SegmentIndex> LongestUnusedSegments() const;

  // The live block that holds `address` (anywhere inside it); kNotFound where none does.
  Result<BlockView> Find(Address address) const override;

  // The part of the live block at the address; the whole pool's where there is none.
  Part PartOf(Address address) const;

  Counters counters() const override;
  void NoteHolding(const Holding& holding) override { ledger().NoteHolding(holding); }
  void ResetPeaks() override;
  std::vector<BlockView> Snapshot() const override;

  // Aborts with a reason where the books do not balance.
  void CheckInvariants() const override;

 protected:
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  const EngineOptions& options() const { return options_; }

 private:
  Choice ChoiceFor(Space space) const { return space == Space::kLarge ? options_.choice : Choice::kBestFit; }

  // The segments that go for one of so many bytes.
  std::vector<GrowthStep> MakeWay(const GrowthRequest& request, uint64_t bytes);

  EngineOptions options_;
  bool reserved_ = false;
  Ledger ledger_;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_CACHING_ENGINE_H_
