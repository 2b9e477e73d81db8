// Fences: events recorded behind a stream's work, so that a block is reused only after that work. A fence is recorded
// at its stream's place, and its number has that place in the top byte. The device waits for it, at the waiter's place.
//
// The table recycles events: in steady state it creates none. Any thread. Its own lock guards bookkeeping; no driver
// call is made under it. Each call makes the place current that it needs.
//
// A thread that asks the driver about an event shares the event, so another thread may retire the fence meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/stream/stream_key.h"
#include "src/library/stream/stream_places.h"

namespace commpool::internal {

using FenceId = uint64_t;

// DeviceTable owns one, for all devices. What a place answers tells of the health of that place.
class FenceTable {
 public:
  FenceTable(const Driver& driver, StreamPlaces& places) : driver_(driver), places_(places) {}
  // Destroys the events, but those of a context that is lost. REQUIRES: nobody uses the table any more.
  ~FenceTable();

  // Records a fence behind everything submitted to the stream so far. REQUIRES: IsReachable(stream).
  Result<FenceId> Record(StreamKey stream);

  // Work submitted to `waiter` from now on runs after the fence; the device waits, not the host. REQUIRES:
  // IsReachable(waiter).
  Status MakeWait(StreamKey waiter, FenceId fence);

  // Work submitted to `waiter` from now on runs after everything submitted to `stream` so far. REQUIRES: both are
  // reachable.
  Status MakeWaitForStream(StreamKey waiter, StreamKey stream);

  // Whether the fence's work is done. Never waits.
  Result<bool> Passed(FenceId fence);

  // Returns the fences of the list that have passed. The list is in the order of recording. A stream's fences pass in
  // that order, so behind one that has not passed it asks for no other. Where a place fails its fences have not passed.
  // Never waits.
  std::vector<FenceId> PassedOf(const std::vector<FenceId>& fences);

  // Waits on the host, at most until the deadline.
  Status Await(FenceId fence, uint64_t deadline_ms);

  // Whether everything submitted to the stream so far is done. Never waits. REQUIRES: IsReachable(stream), and no
  // stream of its place captures, because the question would break the capture.
  Result<bool> IsIdle(StreamKey stream);

  // Call it when a fence has passed, or when nobody waits for it any more: its event is used again. A second call does
  // nothing.
  void Retire(FenceId fence);

 private:
  using SharedEvent = std::shared_ptr<Event>;

  struct Recorded {
    SharedEvent event;
    StreamKey stream = 0;
  };

  // REQUIRES: the place is current.
  Result<SharedEvent> TakeSpareEvent(int place);
  Recorded RecordOf(FenceId fence) const;  // without an event once retired
  // A retired fence's event is done. REQUIRES: its place is current, in relaxed mode: a query belongs to no capture,
  // and would break a global capture on another thread.
  Result<bool> IsDone(const Recorded& recorded);
  Status Checked(CUresult result, CallSite site, int place);
  // kFailedPrecondition for the legacy stream while a blocking stream of its device captures. REQUIRES: the stream's
  // context is current.
  Status CheckUsable(StreamKey stream);
  ContextGuard MakeCurrent(int place) const { return ContextGuard(driver_, places_.At(place).context); }

  const Driver& driver_;
  StreamPlaces& places_;
  mutable Mutex mutex_{LockRank::kStream};
  FenceId next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<FenceId, Recorded> recorded_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<int, std::vector<SharedEvent>> spare_ COMMPOOL_GUARDED_BY(mutex_);  // by place
};

}  // namespace commpool::internal
