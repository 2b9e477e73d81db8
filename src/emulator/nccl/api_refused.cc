// Functions that frameworks link but the emulated NCCL cannot do. Each says why, in the log and as the last error.
#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/group.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

namespace {

constexpr const char* kNoDeviceCode = "the emulator runs no kernels of programs, so they can have no communicator";
constexpr const char* kNoPeerPointers = "the emulator gives no pointers to the memory of other ranks";
constexpr const char* kNoSignals = "the emulator does not do one-sided communication";
constexpr const char* kNoSimulation = "the emulator does not estimate how long a group takes; the group is dropped";

ncclResult_t Refuse(const char* function, const char* reason) {
  if (const ncclResult_t injected = EnterCall(function); injected != ncclSuccess) return injected;
  COMMPOOL_NCCL_WARN("%s: %s", function, reason);
  return Group::OfThisThread().Note(ncclInvalidUsage);
}

}  // namespace

// nccl.h of 2.30 and nccl_device.h declare these. The build needs only older headers.
#define COMMPOOL_NCCL_REFUSED(name, reason, ...)                                     \
  COMMPOOL_NCCL_API ncclResult_t name(__VA_ARGS__) { return Refuse(#name, reason); } \
  COMMPOOL_NCCL_PROFILED(name)

COMMPOOL_NCCL_REFUSED(ncclDevCommCreate, kNoDeviceCode, ncclComm_t, const void*, void*);
COMMPOOL_NCCL_REFUSED(ncclDevCommDestroy, kNoDeviceCode, ncclComm_t, const void*);
COMMPOOL_NCCL_REFUSED(ncclGetLsaMultimemDevicePointer, kNoPeerPointers, ncclWindow_t, size_t, void**);
COMMPOOL_NCCL_REFUSED(ncclGetPeerDevicePointer, kNoPeerPointers, ncclWindow_t, size_t, int, void**);
COMMPOOL_NCCL_REFUSED(ncclPutSignal, kNoSignals, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
                      int, unsigned int, ncclComm_t, cudaStream_t);
COMMPOOL_NCCL_REFUSED(ncclSignal, kNoSignals, int, int, int, unsigned int, ncclComm_t, cudaStream_t);
COMMPOOL_NCCL_REFUSED(ncclWaitSignal, kNoSignals, int, void*, ncclComm_t, cudaStream_t);

COMMPOOL_NCCL_API ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  Group::OfThisThread().Drop();
  return Refuse("ncclGroupSimulateEnd", kNoSimulation);
}
COMMPOOL_NCCL_PROFILED(ncclGroupSimulateEnd);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// The emulated NCCL reads the environment once, so there is nothing to reset.
COMMPOOL_NCCL_API void ncclResetDebugInit() {}
COMMPOOL_NCCL_PROFILED(ncclResetDebugInit);
#pragma GCC diagnostic pop
