// The collectives of one communicator from launch to end. They stay in launch order, whatever their streams do. Any
// thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/emulator/extension.h"
#include "src/emulator/nccl/collective.h"
#include "src/library/base/socket.h"

namespace commpool::internal::emulated_nccl {

class EmulatedCommunicator;

// A collective that a stream holds or will hold. It keeps its communicator alive.
struct PendingCollective {
  std::shared_ptr<EmulatedCommunicator> communicator;
  CollectiveRequest request;
  CollectivePlan plan;
  uint64_t sequence = 0;
  // Known when it is the first of its stream:
  commpoolEmulatorOperation operation = nullptr;
  std::vector<const void*> reads;  // host pointers in the declared order
  std::vector<void*> writes;
  double start_us = 0;
};

// Owns the collectives that are first in their streams. The communicator launches and posts; its progress thread takes
// them.
class ProgressQueue {
 public:
  // Returns the number of the next collective, from 1 on. The collective counts as launched unless Cancel follows.
  uint64_t Launch();
  void CancelLaunch();
  // The same for a caller that may be too late: returns 0 if the queue is closed.
  uint64_t LaunchUnlessClosed();

  // Adds a collective that is now the first of its stream.
  void Post(std::unique_ptr<PendingCollective> pending);
  // Waits for the next collective in launch order. Returns null if the queue is closed and all launched collectives
  // ended.
  std::unique_ptr<PendingCollective> TakeNext();
  void Finish();

  // Waits until all launched collectives ended. Returns false at the deadline, or after an Interrupt.
  bool WaitUntilIdle(Deadline deadline);
  void Interrupt();
  // Waits for collectives that run or could run, but not for those that a stream still holds. Returns true if none is
  // left.
  bool WaitUntilNothingRuns();
  // No launch may follow. Collectives in the queue may still end.
  void Close();
  // Says whether somebody closed the queue before the deadline.
  bool WaitUntilClosed(Deadline deadline);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::unique_ptr<PendingCollective>> posted_;
  uint64_t launched_ = 0;
  uint64_t ended_ = 0;
  bool running_ = false;
  bool closed_ = false;
  bool interrupted_ = false;
};

}  // namespace commpool::internal::emulated_nccl
