// Makes physical memory: one place for cuMemCreate, cuMemAlloc and pinned host memory.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_PHYSICAL_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_PHYSICAL_H_

#include <cuda.h>

#include <memory>

#include "src/emulator/cuda/machine.h"

namespace commpool::internal::emulator {

// CUDA_ERROR_OUT_OF_MEMORY where the location is full, and the location's error where there is none.
CUresult MakePhysical(Machine& machine, uint64_t bytes, const CUmemAllocationProp& properties,
                      std::shared_ptr<Physical>* physical);

// Another handle on memory that a process exported; CUDA_ERROR_UNKNOWN for a descriptor that is no export.
CUresult ImportPhysical(Machine& machine, int descriptor, std::shared_ptr<Physical>* physical);

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_PHYSICAL_H_
