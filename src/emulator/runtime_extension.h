// What the emulated driver and the emulated runtime export only for each other and for PyTorch's operations
// (src/emulator/torch), beyond extension.h.
#pragma once

#include "src/emulator/extension.h"

#ifdef __cplusplus
extern "C" {
#endif

// Like commpoolEmulatorLaunch, but it takes over `context` at the call. `end` frees it when nothing will run the kernel
// any more: for a captured launch that is after the last replay. The driver may call `end` under its lock, so `end` may
// not call the driver.
CUresult commpoolEmulatorLaunchKept(CUstream stream, const commpoolEmulatorAccess* access,
                                    commpoolEmulatorKernel kernel, void* context, void (*end)(void* context));

// Called by a kernel that runs: its context is lost with this error, as by a device assert.
void commpoolEmulatorKernelFailed(CUresult result);

// Sets the place in the program that reports name for what this thread submits from now on; null: its call stack. The
// text lives as long as the process. Returns the place before.
const char* commpoolEmulatorIssuedAt(const char* place);

// A framework's allocator tells of its blocks. The end of a block is an operation of the stream that it was allocated
// for: an access that this stream has not waited for by then is a race, although nobody has used the memory again.
// Without a pool's name nothing begins there: nobody tells of the memory any more.
void commpoolEmulatorBlockBegins(CUdeviceptr address, size_t bytes, CUstream stream, int device, const char* pool);
void commpoolEmulatorBlockEnds(CUdeviceptr address, CUstream stream, int device);

// The runtime's, per thread. Between Begin and End kernel launches, memsets, copies and cuBLAS succeed and do nothing.
// A copy to the host in between fails, for it would show what nobody has computed; and so does a library that the
// emulator does not mute.
typedef struct {
  uint64_t launches;     // launches, memsets and copies that did nothing
  int must_run_at_once;  // 1 if the host wanted to see a result, or another library was called
} commpoolEmulatorMuted;
void commpoolEmulatorMuteBegin(void);
commpoolEmulatorMuted commpoolEmulatorMuteEnd(void);

#ifdef __cplusplus
}
#endif
