// ncclGroupStart and ncclGroupEnd: the end runs what the thread asked for since the start. Each thread has one object.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include "src/emulator/nccl/communicator.h"

namespace commpool::internal::emulated_nccl {

// Owns the calls of a thread's open group. API functions hand it their work; ncclGroupEnd runs that.
class Group {
 public:
  static Group& OfThisThread();

  using Work = std::function<ncclResult_t()>;

  bool open() const { return depth_ > 0; }
  void Start() { ++depth_; }
  // Returns the first error of the group. Then nothing ran, or the work is as far as each call has brought it.
  ncclResult_t End();
  // Ends the group and runs nothing.
  void Drop();

  // Run `work` now, or at the end of the group. Initialisations run first, side by side. Then come calls that wait for
  // other ranks; calls of different communicators run side by side. Launches are last, in order. If a nonblocking
  // communicator takes part, all runs in the background and the result is ncclInProgress. `async` belongs to a
  // communicator that is being made.
  ncclResult_t Initialize(Work work, std::shared_ptr<AsyncWork> async);
  ncclResult_t WaitForRanks(std::shared_ptr<EmulatedCommunicator> communicator, Work work,
                            std::shared_ptr<AsyncWork> async = nullptr);
  ncclResult_t Launch(std::shared_ptr<EmulatedCommunicator> communicator, Work work);

  // Sends and receives run at the group's end, after its collectives. Those of one communicator run side by side.
  ncclResult_t Transfer(std::shared_ptr<EmulatedCommunicator> communicator, CUstream stream,
                        std::vector<PeerTransfer> transfers);

  // Remembers the failure of a call inside the group, and returns it.
  ncclResult_t Note(ncclResult_t result);

 private:
  struct Task {
    std::shared_ptr<EmulatedCommunicator> communicator;
    Work work;
    std::vector<std::shared_ptr<AsyncWork>> users;  // nonblocking communicators that take part
  };
  struct Transfers {
    std::shared_ptr<EmulatedCommunicator> communicator;
    CUstream stream;
    std::vector<PeerTransfer> transfers;
  };
  struct Tasks {
    std::vector<Task> initializations;
    std::vector<Task> waits;
    std::vector<Task> launches;
  };
  // Runs a task at once if no group is open.
  ncclResult_t Take(std::vector<Task> Tasks::*kind, Task task);
  static ncclResult_t RunAll(const Tasks& tasks);

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  Tasks tasks_;
  std::vector<Transfers> transfers_;
};

}  // namespace commpool::internal::emulated_nccl
