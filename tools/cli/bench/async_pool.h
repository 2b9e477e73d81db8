// A pool of the driver's own stream-ordered allocator: what cudaMallocAsync is on top of. Any thread may allocate.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_ASYNC_POOL_H_
#define COMMPOOL_TOOLS_CLI_BENCH_ASYNC_POOL_H_

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::cli {

class AsyncPool {
 public:
  // Of device 0. kNotSupported where the device has no such pools.
  static Result<AsyncPool> Create(const internal::Driver& driver, uint64_t release_threshold_bytes);

  AsyncPool(AsyncPool&& other) noexcept : driver_(other.driver_), pool_(std::exchange(other.pool_, nullptr)) {}
  AsyncPool& operator=(AsyncPool&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(pool_, other.pool_);
    return *this;
  }
  ~AsyncPool() {
    if (pool_ != nullptr) driver_->cuda.cuMemPoolDestroy(pool_);
  }

  // Null where it fails.
  void* Allocate(uint64_t bytes, CUstream stream) const {
    CUdeviceptr address = 0;
    if (driver_->cuda.cuMemAllocFromPoolAsync(&address, bytes, pool_, stream) != CUDA_SUCCESS) return nullptr;
    return reinterpret_cast<void*>(address);
  }
  void Free(void* block, CUstream stream) const {
    driver_->cuda.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(block), stream);
  }
  uint64_t reserved_bytes() const;

 private:
  AsyncPool(const internal::Driver& driver, CUmemoryPool pool) : driver_(&driver), pool_(pool) {}

  const internal::Driver* driver_;
  CUmemoryPool pool_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_ASYNC_POOL_H_
