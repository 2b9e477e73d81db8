// Which memory NCCL accepts for which registration, by its running version. Any thread.
#ifndef COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
#define COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_

#include "src/backing/placement.h"
#include "src/driver/nccl_library.h"

namespace commpool::internal {

// Kinds of memory that NCCL treats differently.
enum class MemoryKind {
  kVirtual,      // one cuMemCreate handle on a device, with a shareable type
  kHostVirtual,  // one on a host NUMA node
  kUnshareable,  // one without a shareable type
  kLinear,       // cudaMalloc's
  kForeign,      // a user's functions made it
};

// ncclCommRegister. NCCL may accept memory and not use it: only its legacy paths use cudaMalloc memory
// (NCCL_LEGACY_CUDA_REGISTER=1), and no error says so.
Status CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory);

// ncclCommWindowRegister. Ranks import each other's handle, so a segment must have exactly one.
Status CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
