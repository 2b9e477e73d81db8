// Which memory NCCL accepts for which registration, by its running version. Any thread.
#ifndef COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
#define COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_

#include "src/backing/placement.h"
#include "src/driver/nccl_library.h"

namespace commpool::internal {

// Kinds of memory that NCCL treats differently.
enum class MemoryKind {
  kVirtual,      // one cuMemCreate handle on a device, with a shareable type
  kHostVirtual,  // one cuMemCreate handle on a host NUMA node
  kUnshareable,  // one cuMemCreate handle without a shareable type
  kLinear,       // memory of cudaMalloc
  kForeign,      // a user's functions made it
};

// Whether ncclCommRegister takes the memory. NCCL may take memory and still not use it, without an error: only its
// legacy paths use cudaMalloc memory (NCCL_LEGACY_CUDA_REGISTER=1).
Status CanRegisterLocalMemory(const NcclLibrary& nccl, MemoryKind memory);

// Whether ncclCommWindowRegister takes the memory. Ranks import each other's handle, so a segment must have exactly
// one.
Status CanRegisterWindowMemory(const NcclLibrary& nccl, MemoryKind memory);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_NCCL_SUPPORT_H_
