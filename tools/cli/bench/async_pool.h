// A pool of the driver's stream-ordered allocator, which cudaMallocAsync uses. Any thread may allocate.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

class AsyncPool : public internal::Handle<AsyncPool, CUmemoryPool> {
 public:
  static constexpr internal::CallSite kRelease{.call = "cuMemPoolDestroy"};
  static CUresult ReleaseValue(const internal::CudaDriver& cuda, CUmemoryPool pool) {
    return cuda.cuMemPoolDestroy(pool);
  }

  // On device 0. kNotSupported where the device has no such pools.
  static Result<AsyncPool> Create(const internal::Driver& driver, uint64_t release_threshold_bytes);

  using Handle::Handle;
  // Null where it fails.
  void* Allocate(uint64_t bytes, CUstream stream) const {
    CUdeviceptr address = 0;
    if (driver().cuda.cuMemAllocFromPoolAsync(&address, bytes, value(), stream) != CUDA_SUCCESS) return nullptr;
    return reinterpret_cast<void*>(address);
  }
  void Free(void* block, CUstream stream) const {
    driver().cuda.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(block), stream);
  }
  uint64_t reserved_bytes() const;
};

}  // namespace commpool::cli
