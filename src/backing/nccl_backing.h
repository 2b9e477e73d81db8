// The nccl backing: ncclMemAlloc. Registers everywhere, and grants every reachable peer whether wanted or not.
//
// With NCCL_CUMEM_ENABLE=0, or where cuMemCreate is missing, ncclMemAlloc falls back to cudaMalloc without a word. The
// backing finds out when it is made, from one segment that it gives back, and again at every segment: such memory makes
// no windows and grants no peers, and the capabilities say why.
#ifndef COMMPOOL_SRC_BACKING_NCCL_BACKING_H_
#define COMMPOOL_SRC_BACKING_NCCL_BACKING_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/driver/device_info.h"

namespace commpool::internal {

// Whether there is an ncclMemAlloc.
Capability CanMakeNccl(const NcclLibrary& nccl);

// REQUIRES: CanMakeNccl(). The driver must outlive the backing and its segments.
Result<std::unique_ptr<Backing>> MakeNcclBacking(const Driver& driver, const DeviceInfo& info,
                                                 const Placement& placement);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_NCCL_BACKING_H_
