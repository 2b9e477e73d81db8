// ncclGroupStart and ncclGroupEnd: what a thread asks for in between runs at the end. One object for each thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_GROUP_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_GROUP_H_

#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include "src/emulator/nccl/communicator.h"

namespace commpool::internal::emulated_nccl {

class Group {
 public:
  static Group& OfThisThread();

  using Work = std::function<ncclResult_t()>;

  bool open() const { return depth_ > 0; }
  void Start() { ++depth_; }
  // The first error of the group: then nothing of it ran, or what ran is as each call left it.
  ncclResult_t End();
  // Ends without running anything.
  void Drop();

  // Runs `work` now, or at the end of the group. Initialisations run side by side, then calls that wait for other
  // ranks (those of different communicators side by side), then launches in order. In the background, with
  // ncclInProgress, where a nonblocking communicator takes part: `async` is that of one being made.
  ncclResult_t Initialize(Work work, std::shared_ptr<AsyncWork> async);
  ncclResult_t WaitForRanks(std::shared_ptr<EmulatedCommunicator> communicator, Work work,
                            std::shared_ptr<AsyncWork> async = nullptr);
  ncclResult_t Launch(std::shared_ptr<EmulatedCommunicator> communicator, Work work);

  // Sends and receives run at the group's end, those of one communicator side by side, after its collectives.
  ncclResult_t Transfer(std::shared_ptr<EmulatedCommunicator> communicator, CUstream stream,
                        std::vector<PeerTransfer> transfers);

  // Remembers the failure of a call inside the group, and hands it back.
  ncclResult_t Note(ncclResult_t result);

 private:
  struct Task {
    std::shared_ptr<EmulatedCommunicator> communicator;
    Work work;
    std::vector<std::shared_ptr<AsyncWork>> users;  // of nonblocking communicators
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
  // Runs a task at once where the group is not open.
  ncclResult_t Take(std::vector<Task> Tasks::*kind, Task task);
  static ncclResult_t RunAll(const Tasks& tasks);

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  Tasks tasks_;
  std::vector<Transfers> transfers_;
};

}  // namespace commpool::internal::emulated_nccl

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_GROUP_H_
