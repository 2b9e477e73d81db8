// What the emulated driver exports only for the emulated runtime, beyond extension.h.
#ifndef COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_
#define COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_

#include "src/emulator/extension.h"

#ifdef __cplusplus
extern "C" {
#endif

// Like commpoolEmulatorLaunch, but it takes over `context` at the call. `end` frees it when nothing will run the kernel
// any more: for a captured launch that is after the last replay. The driver may call `end` under its lock, so `end` may
// not call the driver.
CUresult commpoolEmulatorLaunchKept(CUstream stream, const commpoolEmulatorAccess* access,
                                    commpoolEmulatorKernel kernel, void* context, void (*end)(void* context));

#ifdef __cplusplus
}
#endif

#endif  // COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_
