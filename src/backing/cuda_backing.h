// The cuda backing: cudaMalloc memory, for devices without VMM and for programs that want exactly it.
//
// No windows: the memory has no handle that other ranks could import. A grant enables the peer's context for all
// cudaMalloc memory of the device, this pool's and everybody else's, and so cannot be taken back.
#ifndef COMMPOOL_SRC_BACKING_CUDA_BACKING_H_
#define COMMPOOL_SRC_BACKING_CUDA_BACKING_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"

namespace commpool::internal {

// REQUIRES: an existing device. The driver must outlive the backing and its segments.
Result<std::unique_ptr<Backing>> MakeCudaBacking(const Driver& driver, const Placement& placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_CUDA_BACKING_H_
