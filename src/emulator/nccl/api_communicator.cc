// Makes communicators, answers questions about them, and ends them.
#include <string>
#include <utility>
#include <vector>

#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/host_failure.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/emulator/nccl/new_communicator.h"

namespace commpool::internal::emulated_nccl {

namespace {

// Returns the runtime's current device: the device of the current context, else 0.
int CurrentDevice() {
  GetDriver().cuInit(0);
  CUdevice device = 0;
  return GetDriver().cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

void LogOwnVersion() {
  const int version = ClaimedVersion();
  const std::string text =
      std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  LogVersion("NCCL version " + text + "+cuda13.0");
}

ncclResult_t InitRank(const char* call, ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, int device,
                      const Configuration& configuration = {}) {
  Group& group = Group::OfThisThread();
  if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    COMMPOOL_NCCL_WARN("%s: Invalid rank requested : %d/%d", call, rank, ranks);
    return group.Note(ncclInvalidArgument);
  }
  if (MagicOf(id) == 0) {
    COMMPOOL_NCCL_WARN("%s: the unique id was not made by this library", call);
    return group.Note(ncclInvalidArgument);
  }
  const NewCommunicator created(comm, configuration);
  return group.Initialize(
      [=] {
        if (rank == 0) LogOwnVersion();
        return created.Make({.ranks = ranks, .rank = rank, .device = device}, id);
      },
      created.async());
}

ncclResult_t InitAll(ncclComm_t* comms, int count, const int* devices) {
  int device_count = 0;
  GetDriver().cuInit(0);
  GetDriver().cuDeviceGetCount(&device_count);
  if (comms == nullptr || count < 1 || (devices == nullptr && count > device_count)) {
    COMMPOOL_NCCL_WARN("Invalid device count requested : %d", count);
    return ncclInvalidArgument;
  }
  for (int index = 0; devices != nullptr && index < count; ++index) {
    if (devices[index] >= 0 && devices[index] < device_count) continue;
    COMMPOOL_NCCL_WARN("Invalid device %d (totalnDev=%d)", devices[index], device_count);
    return ncclInvalidArgument;
  }
  Result<ncclUniqueId> id = MakeUniqueId();
  if (!id.ok()) return ncclSystemError;
  Group& group = Group::OfThisThread();
  group.Start();
  for (int rank = 0; rank < count; ++rank) {
    InitRank("ncclCommInitAll", &comms[rank], count, *id, rank, devices != nullptr ? devices[rank] : rank);
  }
  return group.End();
}

}  // namespace

}  // namespace commpool::internal::emulated_nccl

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclGetVersion(int* version) {
  if (const ncclResult_t injected = EnterCall("ncclGetVersion"); injected != ncclSuccess) return injected;
  if (version == nullptr) return ncclInvalidArgument;
  *version = ClaimedVersion();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclGetVersion);

COMMPOOL_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  if (const ncclResult_t injected = EnterCall("ncclGetUniqueId"); injected != ncclSuccess) return injected;
  if (uniqueId == nullptr) return ncclInvalidArgument;
  return OrSystemError([&] {
    const commpool::Result<ncclUniqueId> id = MakeUniqueId();
    if (!id.ok()) return ncclSystemError;
    *uniqueId = *id;
    return ncclSuccess;
  });
}
COMMPOOL_NCCL_PROFILED(ncclGetUniqueId);

COMMPOOL_NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  if (const ncclResult_t injected = EnterCall("ncclCommInitRank"); injected != ncclSuccess) return injected;
  return InitRank("ncclCommInitRank", comm, nranks, commId, rank, CurrentDevice());
}
COMMPOOL_NCCL_PROFILED(ncclCommInitRank);

COMMPOOL_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                                      ncclConfig_t* config) {
  if (const ncclResult_t injected = EnterCall("ncclCommInitRankConfig"); injected != ncclSuccess) return injected;
  Configuration configuration;
  if (const ncclResult_t result = ReadConfig(config, {}, &configuration); result != ncclSuccess) {
    return Group::OfThisThread().Note(result);
  }
  return InitRank("ncclCommInitRankConfig", comm, nranks, commId, rank, CurrentDevice(), configuration);
}
COMMPOOL_NCCL_PROFILED(ncclCommInitRankConfig);

// NCCL takes several ids to spread the connections of thousands of ranks. Here the first id serves all.
COMMPOOL_NCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                                        ncclUniqueId* commIds, ncclConfig_t* config) {
  if (const ncclResult_t injected = EnterCall("ncclCommInitRankScalable"); injected != ncclSuccess) return injected;
  Configuration configuration;
  ncclResult_t result = ReadConfig(config, {}, &configuration);
  if (result == ncclSuccess && (nId < 1 || nId > nranks || commIds == nullptr)) result = ncclInvalidArgument;
  if (result != ncclSuccess) return Group::OfThisThread().Note(result);
  return InitRank("ncclCommInitRankScalable", newcomm, nranks, commIds[0], myrank, CurrentDevice(), configuration);
}
COMMPOOL_NCCL_PROFILED(ncclCommInitRankScalable);

COMMPOOL_NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  if (const ncclResult_t injected = EnterCall("ncclCommInitAll"); injected != ncclSuccess) return injected;
  return OrSystemError([&] { return InitAll(comm, ndev, devlist); });
}
COMMPOOL_NCCL_PROFILED(ncclCommInitAll);

COMMPOOL_NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Call call("ncclCommFinalize", comm);
  if (call.result() != ncclSuccess) return call.result();
  if (call->stopped()) return ncclInvalidUsage;  // nccl.h: not after ncclCommRevoke
  const std::shared_ptr<EmulatedCommunicator>& communicator = call.communicator();
  if (communicator->async() == nullptr) return communicator->Finalize();
  return AsyncWork::Run({communicator->async()}, [communicator] { return communicator->Finalize(); });
}
COMMPOOL_NCCL_PROFILED(ncclCommFinalize);

COMMPOOL_NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const Call call("ncclCommDestroy", comm, Call::Unfinished::kWait);
  if (call.result() != ncclSuccess) return call.result();
  LiveCommunicators::Get().Remove(comm);
  return call.communicator() == nullptr ? ncclSuccess : call->Destroy();
}
COMMPOOL_NCCL_PROFILED(ncclCommDestroy);

COMMPOOL_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (const ncclResult_t injected = EnterCall("ncclCommAbort"); injected != ncclSuccess) return injected;
  if (comm == nullptr) return ncclSuccess;
  if (!FindEntry("ncclCommAbort", comm).exists()) return ncclInvalidArgument;
  const LiveCommunicators::Entry found = LiveCommunicators::Get().Remove(comm);
  if (found.communicator == nullptr) return ncclSuccess;  // a communicator that is still being made ends by itself
  found.communicator->Interrupt();
  if (found.work != nullptr) found.work->Wait();
  found.communicator->Abort();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclCommAbort);

COMMPOOL_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (const ncclResult_t injected = EnterCall("ncclCommGetAsyncError"); injected != ncclSuccess) return injected;
  LiveCommunicators::Entry found = FindEntry("ncclCommGetAsyncError", comm);
  if (!found.exists() || asyncError == nullptr) return ncclInvalidArgument;
  *asyncError = found.work == nullptr ? ncclSuccess : found.work->result();
  if (found.communicator == nullptr) found = LiveCommunicators::Get().Find(comm);
  if (*asyncError == ncclSuccess && found.communicator != nullptr) *asyncError = found.communicator->async_error();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclCommGetAsyncError);

COMMPOOL_NCCL_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const ncclResult_t injected = EnterCall("ncclCommCount"); injected != ncclSuccess) return injected;
  const std::shared_ptr<EmulatedCommunicator> found = FindReported("ncclCommCount", comm);
  if (found == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = found->ranks();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclCommCount);

COMMPOOL_NCCL_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (const ncclResult_t injected = EnterCall("ncclCommCuDevice"); injected != ncclSuccess) return injected;
  const std::shared_ptr<EmulatedCommunicator> found = FindReported("ncclCommCuDevice", comm);
  if (found == nullptr || device == nullptr) return ncclInvalidArgument;
  *device = found->device();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclCommCuDevice);

COMMPOOL_NCCL_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (const ncclResult_t injected = EnterCall("ncclCommUserRank"); injected != ncclSuccess) return injected;
  const std::shared_ptr<EmulatedCommunicator> found = FindReported("ncclCommUserRank", comm);
  if (found == nullptr || rank == nullptr) return ncclInvalidArgument;
  *rank = found->rank();
  return ncclSuccess;
}
COMMPOOL_NCCL_PROFILED(ncclCommUserRank);

COMMPOOL_NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclSystemError:
      return "a call to the operating system failed";
    case ncclInternalError:
      return "internal error of the emulated NCCL, or ranks that disagree";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another rank failed, or the network did";
    case ncclInProgress:
      return "still in progress";
    default:
      return "unknown result code";
  }
}
COMMPOOL_NCCL_PROFILED(ncclGetErrorString);

COMMPOOL_NCCL_API const char* ncclGetLastError(ncclComm_t) { return LastWarning(); }
COMMPOOL_NCCL_PROFILED(ncclGetLastError);
