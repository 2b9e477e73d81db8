// The nccl backing: ncclMemAlloc. Registers everywhere, and grants every reachable peer whether wanted or not.
#ifndef COMMPOOL_SRC_BACKING_NCCL_BACKING_H_
#define COMMPOOL_SRC_BACKING_NCCL_BACKING_H_

#include <memory>

#include "commpool/status.h"
#include "src/backing/backing.h"
#include "src/driver/device_info.h"

namespace commpool {

Capability CanMakeNccl(const Driver& driver);

Result<std::unique_ptr<Backing>> MakeNcclBacking(const Driver& driver, const DeviceInfo& info,
                                                 const Placement& placement);

}  // namespace commpool

#endif  // COMMPOOL_SRC_BACKING_NCCL_BACKING_H_
