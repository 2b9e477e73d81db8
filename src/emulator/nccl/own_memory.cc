#include "src/emulator/nccl/own_memory.h"

#include "src/emulator/nccl/driver.h"

namespace commpool::internal::emulated_nccl {

namespace {

// In units of the allocation granularity.
constexpr size_t kBufferUnits = 16;
constexpr size_t kPersistentUnits = 1;

}  // namespace

CUmemAllocationProp OwnMemory::Properties() const {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUresult OwnMemory::Reserve(Range* range, size_t bytes) const {
  const CUresult result = GetDriver().cuMemAddressReserve(&range->address, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) range->bytes = bytes;
  return result;
}

CUresult OwnMemory::Map(const Range& range) const {
  const DriverFunctions& driver = GetDriver();
  const CUmemAllocationProp properties = Properties();
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver.cuMemCreate(&handle, range.bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuMemMap(range.address, range.bytes, 0, handle, 0);
  driver.cuMemRelease(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  result = driver.cuMemSetAccess(range.address, range.bytes, &access, 1);
  if (result != CUDA_SUCCESS) driver.cuMemUnmap(range.address, range.bytes);
  return result;
}

ncclResult_t OwnMemory::Make(int device, std::shared_ptr<OwnMemory>* made) {
  const DriverFunctions& driver = GetDriver();
  const std::shared_ptr<OwnMemory> memory(new OwnMemory(device));
  const CUmemAllocationProp properties = memory->Properties();
  size_t unit = 0;
  CUresult result = driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result == CUDA_SUCCESS) result = memory->Reserve(&memory->buffers_, kBufferUnits * unit);
  if (result == CUDA_SUCCESS) result = memory->Reserve(&memory->persistent_, kPersistentUnits * unit);
  const bool reserved = result == CUDA_SUCCESS;
  if (reserved) result = memory->Map(memory->persistent_);
  if (result == CUDA_SUCCESS) {
    result = memory->Map(memory->buffers_);
    if (result != CUDA_SUCCESS) driver.cuMemUnmap(memory->persistent_.address, memory->persistent_.bytes);
  }
  if (result == CUDA_SUCCESS) {
    *made = memory;
    return ncclSuccess;
  }
  for (const Range& range : {memory->buffers_, memory->persistent_}) {
    if (range.bytes != 0) driver.cuMemAddressFree(range.address, range.bytes);
  }
  return ncclUnhandledCudaError;
}

void OwnMemory::Leave() {
  if (users_.fetch_sub(1) > 1) return;
  const DriverFunctions& driver = GetDriver();
  if (!suspended_.load()) driver.cuMemUnmap(buffers_.address, buffers_.bytes);
  driver.cuMemUnmap(persistent_.address, persistent_.bytes);
  for (const Range& range : {buffers_, persistent_}) driver.cuMemAddressFree(range.address, range.bytes);
}

ncclResult_t OwnMemory::Release() {
  if (GetDriver().cuMemUnmap(buffers_.address, buffers_.bytes) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  suspended_.store(true);
  return ncclSuccess;
}

ncclResult_t OwnMemory::Restore() {
  if (Map(buffers_) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  suspended_.store(false);
  return ncclSuccess;
}

}  // namespace commpool::internal::emulated_nccl
