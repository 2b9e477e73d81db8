// Streams, events, and the workers that run their operations. Operations run later, never at once, and in any order
// that the rules allow.
//
// Each device has several workers, and one at a time leads: it picks one of the streams whose first operation may run,
// by a seeded choice. It passes the lead on before it runs something that may block, so a blocked host function holds
// its own stream only. Workers go on while the host waits elsewhere, so a collective that another rank needs makes
// progress. The machine's lock guards everything here.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "src/emulator/cuda/operation.h"
#include "src/emulator/cuda/shared_event.h"

// The objects behind a program's handles of streams and events.
struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  int priority = 0;
  bool destroyed = false;  // runs its operations, then goes
  std::deque<std::shared_ptr<commpool::internal::emulator::Operation>> queue;
  // blocks that ended since the last operation: the next may reuse them
  std::vector<std::shared_ptr<const commpool::internal::emulator::AnnouncedBlock>> ended;
  std::shared_ptr<commpool::internal::emulator::Operation> last;  // submitted, done or not
  double time_us = 0;                                             // virtual end of its last finished operation
  commpool::internal::emulator::StreamClock clock;                // after its last finished operation

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<commpool::internal::emulator::Marker> marker;  // this process's last record; null before the first
  std::shared_ptr<commpool::internal::emulator::SharedEvent> shared;  // null until another process may know it
  uint64_t shown = 0;                                                 // the number of `marker` in `shared`

  // The number of the last record, if another process made it; else 0.
  uint64_t RecordedElsewhere() const;
};

struct commpoolEmulatorOperation_st {
  CUstream_st* stream = nullptr;
  std::shared_ptr<commpool::internal::emulator::Operation> operation;
};

namespace commpool::internal::emulator {

class Machine;

// Owns the process's streams and events, and the devices' workers. The machine holds it; every function of streams
// calls it.
class Scheduler {
 public:
  Scheduler(Machine& machine, int devices, uint64_t seed);

  CUstream_st* CreateStream(int device, unsigned flags, int priority);
  void DestroyStream(CUstream_st* stream);
  // Finds the stream of a handle on a device: the legacy stream for 0, the thread's own for CU_STREAM_PER_THREAD.
  // Returns null for an unknown handle, and reports the handle of a destroyed stream.
  CUstream_st* Resolve(CUstream handle, int device);
  // Says whether the handle's stream was destroyed and no new stream has the handle.
  bool IsDead(CUstream handle) const;

  CUevent_st* CreateEvent(int device, unsigned flags);
  bool DestroyEvent(CUevent_st* event);
  bool IsEvent(CUevent_st* event) const { return events_.contains(event); }

  // Appends an operation to a stream, after the operations that the legacy stream's rules put before it.
  void Submit(CUstream_st* stream, std::shared_ptr<Operation> operation);

  // Returns what would come before an operation that is submitted now, as far as its own stream tells.
  StreamReach ReachOf(const CUstream_st* stream) const;

  // Waits for everything that was submitted before, and sets the host's virtual time. It unlocks while it waits.
  void WaitForStream(std::unique_lock<std::mutex>& lock, CUstream_st* stream);
  void WaitForDevice(std::unique_lock<std::mutex>& lock, int device);
  void WaitForMarker(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Marker>& marker);
  bool IsIdle(const CUstream_st* stream) const { return stream->queue.empty(); }
  // Returns the clock of everything that the device has finished.
  Clock ClockOfDevice(int device) const;

  // Ends an operation that began with `start`.
  void Complete(commpoolEmulatorOperation handle, double end_us, CUresult result);

  // Returns the name of an operation that touches the range and has not ended; null if there is none.
  const char* PendingUse(CUdeviceptr address, uint64_t bytes) const;
  // Says whether such an operation runs now, with pointers to the range.
  bool IsRunningOn(CUdeviceptr address, uint64_t bytes) const;

  double host_time_us = 0;  // virtual time

  std::vector<std::string> Describe() const;  // one line for each stream and event that the program left

 private:
  // The threads of a device. They run until the process ends.
  struct Workers {
    bool led = false;  // one thread picks an operation, or runs one that does not block
    int idle = 0;
  };

  void SubmitEndedBlocks(CUstream_st* stream);
  void StartWorker(int device);
  void Work(int device);
  std::vector<CUstream_st*> AllStreams() const;
  std::shared_ptr<Operation> PickReady(int device, CUstream_st** stream);
  bool IsReady(const CUstream_st& stream) const;
  double StartTime(const CUstream_st& stream, const Operation& operation) const;
  void Run(std::unique_lock<std::mutex>& lock, CUstream_st* stream, const std::shared_ptr<Operation>& operation);
  // Says whether the operation may touch its declared ranges. If not, it reports that and loses the context. It returns
  // the pointers if the caller wants them.
  bool CheckRanges(const Operation& operation, Pointers* reads, Pointers* writes);
  void Finish(CUstream_st* stream, const std::shared_ptr<Operation>& operation, double end_us);
  void RetireIfDestroyed(CUstream_st* stream);

  Machine& machine_;
  std::mt19937_64 random_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<CUstream_st>> legacy_;  // by device
  std::map<std::pair<std::thread::id, int>, std::unique_ptr<CUstream_st>> per_thread_;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUstream_st>> dead_;  // handles without a stream; a new stream takes the last one
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
  std::vector<Workers> workers_;  // by device
  std::vector<Clock> gone_;       // by device: the clocks of streams that are gone
  uint64_t next_id_ = 1;
  uint64_t next_sequence_ = 0;
};

}  // namespace commpool::internal::emulator
