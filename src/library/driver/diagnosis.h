// Turns a failed driver or NCCL call into a Status that names the call, the device, the bytes and the likely cause.
//
// It looks for the cause only after a failure (what the device supports, how much memory is left), so a successful call
// pays nothing. Any thread; takes no lock.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

enum class Memory { kDevice, kHost };

// What the caller was doing. Successful calls make one too, so it only points to texts that others own.
struct CallSite {
  const char* call = "";  // the API function
  int device = -1;        // -1 where no device is concerned
  int numa_node = -1;     // for host memory; -1 where none is concerned
  uint64_t bytes = 0;     // 0 where no size is concerned
  Memory memory = Memory::kDevice;
  const char* purpose = "";       // "fence of a freed block": may be empty
  const char* likely_cause = "";  // where the caller knows it; empty: the diagnosis looks for one
};

// OK for CUDA_SUCCESS. kOutOfMemory for CUDA_ERROR_OUT_OF_MEMORY (with the device's free and total memory where one of
// its contexts is current), kNotSupported for NOT_SUPPORTED, NOT_PERMITTED and PEER_ACCESS_UNSUPPORTED, kNotFound for
// NO_DEVICE, kDriverError for the rest. The message reads
//   cuMemCreate of 2 GiB on device 1 failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory) for segment of pool gradients;
//   1.2 GiB of 141 GiB are free; likely cause: ...
Status CheckCuda(const Driver& driver, CUresult result, const CallSite& site);

// Call it before each NCCL call that CheckNccl judges. NCCL never clears its last error, so a text that is there
// already is about an earlier call, perhaps one of the program; CheckNccl leaves that text out.
void NoteOldErrorText(const Driver& driver);

// OK for ncclSuccess. Else kCommunicatorError with NCCL's last error (if it is about this call), the known causes and
// the version that runs. Call it after successful calls too, so that it knows which texts are old.
Status CheckNccl(const Driver& driver, ncclResult_t result, const CallSite& site, ncclComm_t communicator = nullptr);

// Whether every later call on the context fails: then blocks stay closed and destructors call nothing (rule 9).
bool IsSticky(CUresult result);

}  // namespace commpool::internal
