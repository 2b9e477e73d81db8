// What every engine offers its pool, whatever decides which block serves: taking blocks back, the uses that freed ones
// still have, segments, and figures. Serving differs: each engine says how.
//
// Pure: an engine calls nothing outside this folder. Not thread-safe: the pool's lock guards it.
#ifndef COMMPOOL_SRC_ENGINE_ENGINE_H_
#define COMMPOOL_SRC_ENGINE_ENGINE_H_

#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

class Engine {
 public:
  virtual ~Engine() = default;

  // kNotFound where no live block starts at `address` (foreign, or freed already).
  virtual Result<Freed> Free(Address address) = 0;
  // Adds the fence of one of `Freed::streams_to_fence` to the block just freed.
  virtual void AttachFence(Address address, StreamKey stream, Fence fence) = 0;
  // Notes that `stream` uses a live block too. kNotFound as for Free.
  virtual Status RecordStream(Address address, StreamKey stream) = 0;

  // The fence's event has completed: its uses are over.
  virtual void FencePassed(Fence fence) = 0;
  // Fences that have not passed, oldest first.
  virtual ReservedVector<Fence> PendingFences() const = 0;
  // Whether there are any: one load.
  virtual bool HasPendingFences() const = 0;
  // The device was synchronised after `moment` = Now(): nobody uses a block that was freed before it.
  virtual Moment Now() const = 0;
  virtual void DeviceIdle(Moment moment) = 0;
  // The stream's work is done and its key will mean another stream: no block, live or free, waits for it any more.
  virtual void ForgetStream(StreamKey stream) = 0;

  virtual SegmentIndex AddSegment(const SegmentRange& range, Space space = Space::kLarge, Part part = kCommonPart) = 0;
  // Whether a segment has neither live blocks nor streams that may still use one.
  virtual bool IsIdle(SegmentIndex segment) const = 0;
  // REQUIRES: IsIdle(segment).
  virtual SegmentRange RemoveSegment(SegmentIndex segment) = 0;
  // Segments without a live block, smallest index first.
  virtual std::vector<SegmentIndex> WhollyFreeSegments() const = 0;

  // The live block that holds `address` (anywhere inside it); kNotFound where none does.
  virtual Result<BlockView> Find(Address address) const = 0;
  virtual std::vector<BlockView> Snapshot() const = 0;

  virtual Counters counters() const = 0;
  // Blocks that threads' caches hold are live to the engine, but not in use: peaks leave them out. They held `least` at
  // every moment since the last call that changed what is live; until the next call they hold `now`.
  virtual void NoteHolding(const Holding& holding) = 0;
  virtual void ResetPeaks() = 0;
  // Aborts with a reason where the books do not balance.
  virtual void CheckInvariants() const = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_ENGINE_H_
