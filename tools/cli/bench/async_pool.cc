#include "tools/cli/bench/async_pool.h"

#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::cli {

Result<AsyncPool> AsyncPool::Create(const internal::Driver& driver, uint64_t release_threshold_bytes) {
  int supported = 0;
  const CUresult asked = driver.cuda.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
  if (asked != CUDA_SUCCESS || supported == 0) {
    return Status(StatusCode::kNotSupported, "the device has no stream-ordered memory pools");
  }
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  CUmemoryPool handle = nullptr;
  COMMPOOL_TRY(
      internal::CheckCuda(driver, driver.cuda.cuMemPoolCreate(&handle, &properties), {.call = "cuMemPoolCreate"}));
  AsyncPool pool(driver, handle);
  cuuint64_t threshold = release_threshold_bytes;
  COMMPOOL_TRY(internal::CheckCuda(
      driver, driver.cuda.cuMemPoolSetAttribute(handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold),
      {.call = "cuMemPoolSetAttribute", .bytes = release_threshold_bytes}));
  return pool;
}

uint64_t AsyncPool::reserved_bytes() const {
  cuuint64_t bytes = 0;
  driver().cuda.cuMemPoolGetAttribute(value(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return bytes;
}

}  // namespace commpool::cli
