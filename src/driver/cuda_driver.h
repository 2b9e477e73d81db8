// The CUDA driver as a table of functions. Here the emulator takes the real driver's place.
//
// Members have the API's names, types and documentation. The loader fills the table once; it never changes, so any
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

// kNotSupported names every required function that the driver lacks. A missing optional function answers
// CUDA_ERROR_NOT_SUPPORTED.
Result<CudaDriver> ResolveCuda(const SharedLibrary& library);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_CUDA_DRIVER_H_
