// Streams, events and the workers that run their operations: later, never at once, and in any order that the rules
// allow.
//
// Each device has workers, and one at a time leads: it picks among the streams whose head may run, by a seeded choice.
// It gives the lead away before it runs what may block, so that a blocked host function holds its stream only. Workers
// go on while the host waits elsewhere, so that a collective makes progress that another rank needs.
// Guarded by the machine's lock.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_SCHEDULER_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_SCHEDULER_H_

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

// A stream or an event, as programs hold them.
struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  int priority = 0;
  bool destroyed = false;  // runs what it holds, then goes
  std::deque<std::shared_ptr<commpool::internal::emulator::Operation>> queue;
  std::shared_ptr<commpool::internal::emulator::Operation> last;  // submitted, done or not
  double time_us = 0;                                             // virtual end of its last finished operation
  commpool::internal::emulator::StreamClock clock;                // of its last finished operation

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<commpool::internal::emulator::Marker> marker;  // of the last record; null before the first
};

struct commpoolEmulatorOperation_st {
  CUstream_st* stream = nullptr;
  std::shared_ptr<commpool::internal::emulator::Operation> operation;
};

namespace commpool::internal::emulator {

class Machine;

class Scheduler {
 public:
  Scheduler(Machine& machine, int devices, uint64_t seed);

  CUstream_st* CreateStream(int device, unsigned flags, int priority);
  void DestroyStream(CUstream_st* stream);
  // The stream that a handle means on a device: the legacy stream for 0, the thread's own for CU_STREAM_PER_THREAD.
  // Null for a handle that there is not; that of a destroyed stream is reported.
  CUstream_st* Resolve(CUstream handle, int device);
  // Whether its stream was destroyed, and no other has the handle yet.
  bool IsDead(CUstream handle) const;

  CUevent_st* CreateEvent(int device, unsigned flags);
  bool DestroyEvent(CUevent_st* event);
  bool IsEvent(CUevent_st* event) const { return events_.contains(event); }

  // Puts an operation at a stream's end, behind what the legacy stream's rules put before it.
  void Submit(CUstream_st* stream, std::shared_ptr<Operation> operation);

  // What would come before an operation that is submitted now, as far as its own stream tells.
  StreamReach ReachOf(const CUstream_st* stream) const;

  // Waits for what was submitted so far, and joins the host's virtual time. The lock is given up meanwhile.
  void WaitForStream(std::unique_lock<std::mutex>& lock, CUstream_st* stream);
  void WaitForDevice(std::unique_lock<std::mutex>& lock, int device);
  void WaitForMarker(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Marker>& marker);
  bool IsIdle(const CUstream_st* stream) const { return stream->queue.empty(); }
  // Of what the device has finished so far.
  Clock ClockOfDevice(int device) const;

  // Ends an operation that began with `start`.
  void Complete(commpoolEmulatorOperation handle, double end_us, CUresult result);

  // The name of an operation still to end that touches the range; null where there is none.
  const char* PendingUse(CUdeviceptr address, uint64_t bytes) const;
  // Whether such an operation is running at this moment, with pointers to the range.
  bool IsRunningOn(CUdeviceptr address, uint64_t bytes) const;

  double host_time_us = 0;  // virtual

  std::vector<std::string> Describe() const;  // a line for each stream and event that the program left

 private:
  // The threads of a device. They never end: the process ends them.
  struct Workers {
    bool led = false;  // one of them picks, or runs what does not block
    int idle = 0;
  };

  void StartWorker(int device);
  void Work(int device);
  std::vector<CUstream_st*> AllStreams() const;
  std::shared_ptr<Operation> PickReady(int device, CUstream_st** stream);
  bool IsReady(const CUstream_st& stream) const;
  double StartTime(const CUstream_st& stream, const Operation& operation) const;
  void Run(std::unique_lock<std::mutex>& lock, CUstream_st* stream, const std::shared_ptr<Operation>& operation);
  // Whether the operation may touch what it declares; if not, reports it and loses the context. Its pointers, where
  // asked.
  bool CheckRanges(const Operation& operation, Pointers* reads, Pointers* writes);
  void Finish(CUstream_st* stream, const std::shared_ptr<Operation>& operation, double end_us);
  void RetireIfDestroyed(CUstream_st* stream);

  Machine& machine_;
  std::mt19937_64 random_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<CUstream_st>> legacy_;  // by device
  std::map<std::pair<std::thread::id, int>, std::unique_ptr<CUstream_st>> per_thread_;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUstream_st>> dead_;  // handles without a stream; the last is given to the next one
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events_;
  std::vector<Workers> workers_;  // by device
  std::vector<Clock> gone_;       // by device: of streams that are no more
  uint64_t next_id_ = 1;
  uint64_t next_sequence_ = 0;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_SCHEDULER_H_
