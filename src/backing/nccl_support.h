// Which memory NCCL takes for which registration, by the version that runs. Any thread.
#ifndef COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
#define COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_

#include "src/backing/placement.h"
#include "src/driver/device_info.h"
#include "src/driver/nccl_library.h"

namespace commpool::internal {

// What NCCL tells apart.
enum class MemoryKind {
  kVirtual,      // one cuMemCreate handle on a device, with a shareable type
  kHostVirtual,  // one on a host NUMA node
  kUnshareable,  // one without a shareable type
  kLinear,       // cudaMalloc's
  kForeign,      // a user's functions made it
};

// ncclCommRegister. NCCL may take memory and not use it: cudaMalloc memory serves its legacy paths only
// (NCCL_LEGACY_CUDA_REGISTER=1), and no error tells otherwise.
Capability CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory);

// ncclCommWindowRegister: ranks import each other's handle, so there must be one and only one.
Capability CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
