// Makes physical memory for cuMemCreate, cuMemAlloc and pinned host memory.
#pragma once

#include <cuda.h>

#include <memory>

#include "src/emulator/cuda/machine.h"
#include "src/emulator/cuda/shared_file.h"

namespace commpool::internal::emulator {

// Returns CUDA_ERROR_OUT_OF_MEMORY if the location is full, or the location's own error if it does not exist.
CUresult MakePhysical(Machine& machine, uint64_t bytes, const CUmemAllocationProp& properties,
                      std::shared_ptr<Physical>* physical);

// Makes another handle for memory that a process exported. Returns CUDA_ERROR_UNKNOWN if the descriptor is not an
// export.
CUresult ImportPhysical(Machine& machine, int descriptor, std::shared_ptr<Physical>* physical);

// Where another process finds the memory.
IpcPlace PlaceOf(const Physical& physical);
// Does the same by the handle of cuIpcGetMemHandle. Returns CUDA_ERROR_INVALID_VALUE if the memory is gone,
// CUDA_ERROR_INVALID_HANDLE if its process is, and CUDA_ERROR_INVALID_CONTEXT if it is this process.
CUresult ImportPhysical(Machine& machine, const IpcPlace& place, std::shared_ptr<Physical>* physical);

}  // namespace commpool::internal::emulator
