// Fences: events recorded behind a stream's work, so that a block is reused only after that work. Each device has one
// table (DeviceState).
//
// The table recycles events: in steady state it creates none. Any thread. Its own lock guards bookkeeping; no driver
// call is made under it. The caller makes the table's device current, except for Retire.
//
// A thread that asks the driver about an event shares the event, so another thread may retire the fence meanwhile.
#ifndef COMMPOOL_SRC_STREAM_FENCE_TABLE_H_
#define COMMPOOL_SRC_STREAM_FENCE_TABLE_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/driver/handles.h"
#include "src/stream/device_health.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

using FenceId = uint64_t;

class FenceTable {
 public:
  FenceTable(const Driver& driver, int device, DeviceHealth& health)
      : driver_(driver), device_(device), health_(health) {}

  // Records a fence behind everything submitted to the stream so far. Waits for the device on the host where the stream
  // is another thread's per-thread default stream. The stream may be of another device that uses the memory as a peer.
  Result<FenceId> Record(StreamKey stream);

  // Work submitted to `waiter` from now on runs after the fence; the device waits, not the host. REQUIRES:
  // IsReachable(waiter).
  Status MakeWait(StreamKey waiter, FenceId fence);

  // Work submitted to `waiter` from now on runs after everything submitted to `stream` so far. The host waits for the
  // whole device where one of the two streams belongs to another thread.
  Status MakeWaitForStream(StreamKey waiter, StreamKey stream);

  // Whether the fence's work is done. Never waits.
  Result<bool> Passed(FenceId fence);

  // Returns the fences of the list that have passed. The list is in the order of recording. A stream's fences pass in
  // that order, so behind one that has not passed it asks for no other. Where this device fails it returns those that
  // it knows; the fences of another device that fails have not passed. Never waits.
  std::vector<FenceId> PassedOf(const std::vector<FenceId>& fences);

  // Whether everything submitted to the stream so far is done; false where another device's stream fails. Never waits.
  // REQUIRES: IsReachable(stream), and no stream of the device captures, because the question would break the capture.
  Result<bool> IsIdle(StreamKey stream);

  // Call it when a fence has passed, or when nobody waits for it any more: its event is used again. A second call does
  // nothing.
  void Retire(FenceId fence);

  Status SynchronizeDevice();

  // Destroys the events. REQUIRES: nobody uses the table any more.
  void Clear();
  // After a sticky error or at exit: destroys nothing.
  void Abandon();

 private:
  using SharedEvent = std::shared_ptr<Event>;

  enum class Where { kHere, kElsewhere };  // on this device, on another
  struct Recorded {
    SharedEvent event;
    StreamKey stream = 0;
    Where where = Where::kHere;  // events elsewhere are rare, so they are not kept for reuse
  };

  Result<FenceId> RecordOnAnotherDevice(StreamKey stream);
  FenceId Keep(Recorded recorded);
  Result<SharedEvent> MakeEvent() const;
  Result<SharedEvent> TakeSpareEvent();
  Recorded RecordOf(FenceId fence) const;  // without an event once retired
  // Queries run in relaxed mode: they belong to no capture, and would break a global capture on another thread. A
  // retired fence's event is done.
  Result<bool> IsDone(const Recorded& recorded);
  // What another device's streams and events answer says nothing of this device's health.
  Status Checked(CUresult result, CallSite site, Where device);
  // kElsewhere too where a device that failed does not tell.
  Where WhereIs(StreamKey stream) const;

  const Driver& driver_;
  const int device_;
  DeviceHealth& health_;
  mutable Mutex mutex_{LockRank::kStream};
  FenceId next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<FenceId, Recorded> recorded_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<SharedEvent> spare_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_STREAM_FENCE_TABLE_H_
