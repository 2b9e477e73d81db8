// The CUDA driver as a table of functions: the seam at which the real driver and the emulator are exchanged.
//
// Members have the API's names, types and documentation. Filled once by the loader and constant afterwards, so any
// thread may call through it. There is no cuMulticastCreate: only NCCL needs it.
#ifndef COMMPOOL_SRC_DRIVER_CUDA_DRIVER_H_
#define COMMPOOL_SRC_DRIVER_CUDA_DRIVER_H_

#include <cuda.h>

#include "commpool/status.h"
#include "src/driver/shared_library.h"

namespace commpool::internal {

struct CudaDriver {
#define COMMPOOL_CUDA(name, version) decltype(&::name) name = nullptr;
#include "src/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
};

// kNotSupported names every required function that the driver lacks. Optional ones answer CUDA_ERROR_NOT_SUPPORTED.
Result<CudaDriver> ResolveCuda(const SharedLibrary& library);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_CUDA_DRIVER_H_
