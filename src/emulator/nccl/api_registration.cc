// Registrations and windows.
#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  const Call call("ncclCommRegister", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (buff == nullptr || handle == nullptr) return ncclInvalidArgument;
  return call->RegisterLocal(buff, size, handle);
}
COMMPOOL_NCCL_PROFILED(ncclCommRegister);

COMMPOOL_NCCL_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Call call("ncclCommDeregister", comm, Call::Unfinished::kGoOn);
  if (call.result() != ncclSuccess) return call.result();
  return call->DeregisterLocal(handle);
}
COMMPOOL_NCCL_PROFILED(ncclCommDeregister);

COMMPOOL_NCCL_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                                      int winFlags) {
  Group& group = Group::OfThisThread();
  const Call call("ncclCommWindowRegister", comm);
  if (call.result() != ncclSuccess) return group.Note(call.result());
  const bool known_flags = winFlags == NCCL_WIN_DEFAULT || winFlags == NCCL_WIN_COLL_SYMMETRIC;
  if (buff == nullptr || win == nullptr || !known_flags) {
    COMMPOOL_NCCL_WARN("ncclCommWindowRegister : buffer %p, window %p or flags %d are invalid", buff,
                       static_cast<void*>(win), winFlags);
    return group.Note(ncclInvalidArgument);
  }
  const std::shared_ptr<EmulatedCommunicator>& communicator = call.communicator();
  communicator->WantWindow({.buffer = buff, .bytes = size, .flags = winFlags, .window = win});
  const ncclResult_t result = group.WaitForRanks(communicator, [communicator] { return communicator->MakeWindows(); });
  // As measured with NCCL 2.28.9 on H200s: the call succeeds at once, but the window exists only when the
  // communicator's state is success too.
  return result == ncclInProgress ? ncclSuccess : result;
}
COMMPOOL_NCCL_PROFILED(ncclCommWindowRegister);

COMMPOOL_NCCL_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  const Call call("ncclCommWindowDeregister", comm, Call::Unfinished::kGoOn);
  if (call.result() != ncclSuccess) return call.result();
  return call->DeregisterWindow(win);
}
COMMPOOL_NCCL_PROFILED(ncclCommWindowDeregister);

// NCCL has this from 2.29 on. The build needs only older headers.
COMMPOOL_NCCL_API ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** pointer) {
  const Call call("ncclWinGetUserPtr", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (win == nullptr || pointer == nullptr) return ncclInvalidArgument;
  return call->FindWindow(win, pointer);
}
COMMPOOL_NCCL_PROFILED(ncclWinGetUserPtr);
