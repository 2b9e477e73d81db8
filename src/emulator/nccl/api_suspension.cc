// A communicator's own memory: how much it is, and giving it back for a while.
#include <cstdint>

#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/library/driver/newer_nccl.h"

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

namespace {

ncclResult_t WithOwnMemory(const char* name, ncclComm_t comm, ncclResult_t (EmulatedCommunicator::*work)()) {
  Group& group = Group::OfThisThread();
  const Call call(name, comm);
  if (call.result() != ncclSuccess) return group.Note(call.result());
  const std::shared_ptr<EmulatedCommunicator>& communicator = call.communicator();
  if (communicator->memory()->shared()) {
    COMMPOOL_NCCL_WARN("%s: not supported with split_share communicators", name);
    return group.Note(ncclInvalidUsage);
  }
  return group.WaitForRanks(communicator, [communicator, work] { return (communicator.get()->*work)(); });
}

}  // namespace

COMMPOOL_NCCL_API ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  // NCCL does nothing for other flags.
  if ((flags & NCCL_SUSPEND_MEM) != 0) return WithOwnMemory("ncclCommSuspend", comm, &EmulatedCommunicator::Sleep);
  const Call call("ncclCommSuspend", comm);
  return call.result();
}
COMMPOOL_NCCL_PROFILED(ncclCommSuspend);

COMMPOOL_NCCL_API ncclResult_t ncclCommResume(ncclComm_t comm) {
  return WithOwnMemory("ncclCommResume", comm, &EmulatedCommunicator::Wake);
}
COMMPOOL_NCCL_PROFILED(ncclCommResume);

COMMPOOL_NCCL_API ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  const Call call("ncclCommMemStats", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (value == nullptr) return ncclInvalidArgument;
  const OwnMemory& memory = *call->memory();
  switch (stat) {
    case ncclStatGpuMemSuspend:
      *value = memory.suspendable_bytes();
      return ncclSuccess;
    case ncclStatGpuMemSuspended:
      *value = memory.suspended() ? 1 : 0;
      return ncclSuccess;
    case ncclStatGpuMemPersist:
      *value = memory.persistent_bytes();
      return ncclSuccess;
    case ncclStatGpuMemTotal:
      *value = memory.suspendable_bytes() + memory.persistent_bytes();
      return ncclSuccess;
    default:
      return ncclInvalidArgument;
  }
}
COMMPOOL_NCCL_PROFILED(ncclCommMemStats);
