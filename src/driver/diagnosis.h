// Turns a failed driver or NCCL call into a Status that names the call, the device, the bytes and the likely cause.
//
// The cause is looked up after the failure (what the device supports, how much memory is left), so that the success of
// a driver call pays nothing. Any thread; takes no lock.
#ifndef COMMPOOL_SRC_DRIVER_DIAGNOSIS_H_
#define COMMPOOL_SRC_DRIVER_DIAGNOSIS_H_

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <string>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::internal {

// What was being done. Made for calls that succeed too, so it holds texts that live anyway.
struct CallSite {
  const char* call = "";          // the API function
  int device = -1;                // -1 where no device is concerned
  int numa_node = -1;             // of host memory; -1 where none is concerned
  uint64_t bytes = 0;             // 0 where no size is concerned
  const char* purpose = "";       // "fence of a freed block": may be empty
  const char* likely_cause = "";  // known to the caller; empty lets the diagnosis find one
};

// OK for CUDA_SUCCESS. kOutOfMemory for CUDA_ERROR_OUT_OF_MEMORY (with the device's free and total memory where one of
// its contexts is current), kNotSupported for NOT_SUPPORTED, NOT_PERMITTED and PEER_ACCESS_UNSUPPORTED, kNotFound for
// NO_DEVICE, kDriverError for the rest. The message reads
//   cuMemCreate of 2 GiB on device 1 failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory) for segment of pool gradients;
//   1.2 GiB of 141 GiB are free; likely cause: ...
Status CheckCuda(const Driver& driver, CUresult result, const CallSite& site);

// Before a call of NCCL's that CheckNccl judges: what NCCL has said by now is of earlier calls, among them the
// program's own, and is no part of this one's failure. NCCL never clears it.
void HearLastWords(const Driver& driver);

// OK for ncclSuccess; kCommunicatorError otherwise, with NCCL's own last error where it is of this failure, what is
// known to cause it and the version that runs. Pass successes too.
Status CheckNccl(const Driver& driver, ncclResult_t result, const CallSite& site, ncclComm_t communicator = nullptr);

// Errors after which every call on the context fails: blocks are quarantined and destructors call nothing (rule 9).
bool IsSticky(CUresult result);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_DIAGNOSIS_H_
