// The cuda backing: cudaMalloc memory (cuMemAlloc). No shareable handle, so no windows; peers are enabled for the
// process.
#ifndef COMMPOOL_SRC_BACKING_CUDA_BACKING_H_
#define COMMPOOL_SRC_BACKING_CUDA_BACKING_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/driver/device_info.h"

namespace commpool {

Result<std::unique_ptr<Backing>> MakeCudaBacking(const Driver& driver, const DeviceInfo& info,
                                                 const Placement& placement);

}  // namespace commpool

#endif  // COMMPOOL_SRC_BACKING_CUDA_BACKING_H_
