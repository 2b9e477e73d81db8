// Fills the function tables from an opened library. Any thread.
#ifndef COMMPOOL_SRC_DRIVER_RESOLVE_H_
#define COMMPOOL_SRC_DRIVER_RESOLVE_H_

#include "commpool/status.h"
#include "src/driver/cuda_driver.h"
#include "src/driver/nccl_library.h"
#include "src/driver/shared_library.h"

namespace commpool::internal {

// kNotSupported names every required function that the driver lacks. Optional ones answer CUDA_ERROR_NOT_SUPPORTED.
Result<CudaDriver> ResolveCuda(const SharedLibrary& library);

// What the library lacks is null; a library that does not tell its version is as good as none.
NcclLibrary ResolveNccl(const SharedLibrary& library);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_DRIVER_RESOLVE_H_
