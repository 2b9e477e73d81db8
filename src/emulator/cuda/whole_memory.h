// Memory that is mapped by itself: of cuMemAlloc, of cuMemAllocHost, and opened from another process.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>

#include "src/emulator/cuda/machine.h"

namespace commpool::internal::emulator {

// The unit of pinned and registered memory.
inline constexpr uint64_t kHostPageBytes = 4096;

enum class Whole { kLinear, kPinnedHost };

// Maps memory at addresses of its own. The program asked for `bytes` of it.
CUresult MapWhole(Machine& machine, std::shared_ptr<Physical> physical, Whole kind, uint64_t bytes,
                  CUdeviceptr* address);

// Waits for the work on it and unmaps it. Returns CUDA_ERROR_INVALID_VALUE if none begins at the address.
CUresult FreeWhole(Machine& machine, std::unique_lock<std::mutex>& lock, Whole kind, CUdeviceptr address,
                   const char* call);

}  // namespace commpool::internal::emulator
