// Collectives of one communicator between their launch and their end, in launch order whatever their streams do.
// Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_PROGRESS_QUEUE_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_PROGRESS_QUEUE_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/socket.h"
#include "src/emulator/extension.h"
#include "src/emulator/nccl/collective.h"

namespace commpool::internal::emulated_nccl {

class EmulatedCommunicator;

// A collective that a stream holds or will hold. It keeps its communicator alive.
struct PendingCollective {
  std::shared_ptr<EmulatedCommunicator> communicator;
  CollectiveRequest request;
  CollectivePlan plan;
  uint64_t sequence = 0;
  // Known once it is at the head of its stream:
  commpoolEmulatorOperation operation = nullptr;
  std::vector<const void*> reads;  // host pointers, as declared
  std::vector<void*> writes;
  double start_us = 0;
};

class ProgressQueue {
 public:
  // The number of the next collective, from 1; launched unless Cancel follows.
  uint64_t Launch();
  void CancelLaunch();
  // The same for a caller that may come too late: 0 once the queue is closed.
  uint64_t LaunchUnlessClosed();

  // It has reached the head of its stream.
  void Post(std::unique_ptr<PendingCollective> pending);
  // Waits for the next in launch order; null once the queue is closed and everything launched has ended.
  std::unique_ptr<PendingCollective> TakeNext();
  void Finish();

  // Whether everything launched has ended before the deadline, or an Interrupt.
  bool WaitUntilIdle(Deadline deadline);
  void Interrupt();
  // Waits for collectives that run or could run, not for those that a stream still holds back. True where none is left.
  bool WaitUntilNothingRuns();
  // No launch follows. Collectives in the queue may still end.
  void Close();
  // Whether the queue was closed before the deadline.
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

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_PROGRESS_QUEUE_H_
