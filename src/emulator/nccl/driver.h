// The emulated CUDA driver as the emulated NCCL sees it: found at run time, never linked. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_NCCL_DRIVER_H_
#define COMMPOOL_SRC_EMULATOR_NCCL_DRIVER_H_

#include <cuda.h>

#include <string>

#include "src/emulator/extension.h"

// Every driver function that is used; a name that cuda.h maps to a version is looked up under that version.
#define COMMPOOL_EMULATED_NCCL_DRIVER_FUNCTIONS(X) \
  X(cuCtxGetCurrent)                               \
  X(cuCtxSetCurrent)                               \
  X(cuCtxGetDevice)                                \
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

// The driver of this process. Aborts with the reason where there is none, or where it is a real one.
const DriverFunctions& GetDriver();

// A whole number from the emulator's description; `fallback` where the key is not declared or no number.
int NumberSetting(const char* key, int fallback);
std::string TextSetting(const char* key, const char* fallback);
// Whether one of NCCL's environment variables is 0.
bool IsSwitchedOff(const char* variable);

// The version that the emulated library claims, as NCCL_VERSION_CODE: description key nccl, default 2.28.9.
int ClaimedVersion();

// How long a rank that does not arrive is waited for: description key nccl_timeout_ms, default 60000.
int TimeoutMilliseconds();

// Makes `context` current for a block, and restores what was.
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

#endif  // COMMPOOL_SRC_EMULATOR_NCCL_DRIVER_H_
