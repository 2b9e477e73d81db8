// The emulated CUDA driver for the emulated NCCL, which finds it at run time and never links it. Any thread.
#pragma once

#include <cuda.h>

#include <string>

#include "src/emulator/extension.h"

// Lists the driver functions that NCCL uses. If cuda.h maps a name to a version, the look-up uses that version.
#define COMMPOOL_EMULATED_NCCL_DRIVER_FUNCTIONS(X) \
  X(cuCtxGetCurrent)                               \
  X(cuCtxSetCurrent)                               \
  X(cuCtxGetDevice)                                \
  X(cuCtxSynchronize)                              \
  X(cuDeviceCanAccessPeer)                         \
  X(cuDeviceGetAttribute)                          \
  X(cuDeviceGetCount)                              \
  X(cuDeviceTotalMem)                              \
  X(cuDevicePrimaryCtxRelease)                     \
  X(cuDevicePrimaryCtxRetain)                      \
  X(cuInit)                                        \
  X(cuMemAddressFree)                              \
  X(cuMemAddressReserve)                           \
  X(cuMemAlloc)                                    \
  X(cuMemCreate)                                   \
  X(cuMemFree)                                     \
  X(cuMemGetAllocationGranularity)                 \
  X(cuMemMap)                                      \
  X(cuMemRelease)                                  \
  X(cuMemRetainAllocationHandle)                   \
  X(cuMemSetAccess)                                \
  X(cuMemUnmap)                                    \
  X(cuMulticastAddDevice)                          \
  X(cuMulticastBindMem)                            \
  X(cuMulticastCreate)                             \
  X(cuMulticastGetGranularity)                     \
  X(cuMulticastUnbind)                             \
  X(cuStreamIsCapturing)                           \
  X(commpoolEmulatorAdvance)                       \
  X(commpoolEmulatorCapture)                       \
  X(commpoolEmulatorClock)                         \
  X(commpoolEmulatorComplete)                      \
  X(commpoolEmulatorEnqueue)                       \
  X(commpoolEmulatorEnterCall)                     \
  X(commpoolEmulatorFindMapping)                   \
  X(commpoolEmulatorForgetResource)                \
  X(commpoolEmulatorHold)                          \
  X(commpoolEmulatorJoinClock)                     \
  X(commpoolEmulatorNoteNvls)                      \
  X(commpoolEmulatorNoteResource)                  \
  X(commpoolEmulatorNow)                           \
  X(commpoolEmulatorReport)                        \
  X(commpoolEmulatorSetting)                       \
  X(commpoolEmulatorUnhold)

namespace commpool::internal::emulated_nccl {

struct DriverFunctions {
#define COMMPOOL_MEMBER(name) decltype(&::name) name = nullptr;
  COMMPOOL_EMULATED_NCCL_DRIVER_FUNCTIONS(COMMPOOL_MEMBER)
#undef COMMPOOL_MEMBER
};

// Returns the driver of this process. Aborts with the reason if there is none, or if it is a real one.
const DriverFunctions& GetDriver();

// Reads a whole number from the emulator's description; `fallback` if the key is missing or is not a number.
int NumberSetting(const char* key, int fallback);
std::string TextSetting(const char* key, const char* fallback);
// Returns one of NCCL's environment variables, or null. NCCL reads each once a process (src/misc/param.cc).
const char* NcclVariable(const char* name);
// Says whether one is 0.
bool IsSwitchedOff(const char* variable);

// Returns the version that the library pretends to be, as NCCL_VERSION_CODE. Description key nccl, default 2.28.9.
int ClaimedVersion();

// Returns how long to wait for a missing rank. Description key nccl_timeout_ms, default 60000.
int TimeoutMilliseconds();

// Says whether collectives move bytes: not where the emulator runs without arithmetic.
bool MovesBytes();

// Says whether only this rank of each communicator runs. Then the others answer every exchange as this rank does.
bool RunsAlone();

// Makes `context` current for a block, and restores the previous one. It owns nothing; communicators use it around
// driver calls.
class CurrentContext {
 public:
  explicit CurrentContext(CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  CUcontext saved_ = nullptr;
};

}  // namespace commpool::internal::emulated_nccl
