// What the emulated driver exports for the emulated runtime alone, beyond extension.h.
#ifndef COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_
#define COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_

#include "src/emulator/extension.h"

#ifdef __cplusplus
extern "C" {
#endif

// As commpoolEmulatorLaunch, and owns `context` from the call on: `end` frees it once nothing will run the kernel any
// more, after the last replay of a captured launch too. `end` may be called under the driver's lock: it may call
// nothing of the driver's.
CUresult commpoolEmulatorLaunchKept(CUstream stream, const commpoolEmulatorAccess* access,
                                    commpoolEmulatorKernel kernel, void* context, void (*end)(void* context));

#ifdef __cplusplus
}
#endif

#endif  // COMMPOOL_SRC_EMULATOR_RUNTIME_EXTENSION_H_
