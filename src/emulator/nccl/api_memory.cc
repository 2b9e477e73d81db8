// ncclMemAlloc and ncclMemFree. They give access to every peer-capable device, as documented, which costs time (NCCL
// 2.28.9, src/allocator.cc).
#include <optional>
#include <string>
#include <vector>

#include "src/emulator/nccl/api.h"
#include "src/emulator/nccl/driver.h"
#include "src/emulator/nccl/live_communicators.h"
#include "src/emulator/nccl/log.h"
#include "src/library/base/bytes.h"

namespace commpool::internal::emulated_nccl {

namespace {

// When this is off, NCCL uses cudaMalloc and says nothing.
bool VirtualMemoryOff() { return IsSwitchedOff("NCCL_CUMEM_ENABLE"); }

int Attribute(CUdevice_attribute attribute, int device) {
  int value = 0;
  GetDriver().cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

CUmemAllocationProp PropertiesFor(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) != 0) {
    properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  return properties;
}

// Asks for fabric handles if the device has them and the system allows them.
CUresult CreatePhysical(CUmemGenericAllocationHandle* handle, size_t bytes, CUmemAllocationProp properties) {
  const DriverFunctions& driver = GetDriver();
  const int device = properties.location.id;
  if (Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device) != 0) {
    CUmemAllocationProp with_fabric = properties;
    with_fabric.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC);
    const CUresult result = driver.cuMemCreate(handle, bytes, &with_fabric, 0);
    if (result != CUDA_ERROR_NOT_PERMITTED && result != CUDA_ERROR_NOT_SUPPORTED) return result;
  }
  return driver.cuMemCreate(handle, bytes, &properties, 0);
}

std::vector<CUmemAccessDesc> EveryPeer(int device) {
  int count = 0;
  GetDriver().cuDeviceGetCount(&count);
  std::vector<CUmemAccessDesc> accesses;
  for (int peer = 0; peer < count; ++peer) {
    int reaches = peer == device ? 1 : 0;
    if (peer != device) GetDriver().cuDeviceCanAccessPeer(&reaches, peer, device);
    if (reaches == 0) continue;
    accesses.push_back(
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return accesses;
}

// Reserves, maps and grants. If a step fails, it gives everything back.
CUresult MapPhysical(CUmemGenericAllocationHandle handle, size_t bytes, size_t granularity, int device,
                     CUdeviceptr* address) {
  const DriverFunctions& driver = GetDriver();
  if (const CUresult result = driver.cuMemAddressReserve(address, bytes, granularity, 0, 0); result != CUDA_SUCCESS) {
    return result;
  }
  CUresult result = driver.cuMemMap(*address, bytes, 0, handle, 0);
  if (result == CUDA_SUCCESS) {
    const std::vector<CUmemAccessDesc> accesses = EveryPeer(device);
    result = driver.cuMemSetAccess(*address, bytes, accesses.data(), accesses.size());
    if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
    driver.cuMemUnmap(*address, bytes);
  }
  driver.cuMemAddressFree(*address, bytes);
  return result;
}

ncclResult_t Allocate(void** pointer, size_t size) {
  const DriverFunctions& driver = GetDriver();
  driver.cuInit(0);
  CUdevice device = 0;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) device = 0;
  CUdeviceptr address = 0;
  if (VirtualMemoryOff()) {
    if (driver.cuMemAlloc(&address, size) != CUDA_SUCCESS) return ncclUnhandledCudaError;
    *pointer = reinterpret_cast<void*>(address);
    return ncclSuccess;
  }
  const CUmemAllocationProp properties = PropertiesFor(device);
  size_t granularity = 0;
  if (driver.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) !=
      CUDA_SUCCESS) {
    return ncclUnhandledCudaError;
  }
  const std::optional<uint64_t> bytes = CheckedRoundUp(size, granularity);
  if (!bytes) return ncclInvalidArgument;
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = CreatePhysical(&handle, *bytes, properties);
  if (result == CUDA_SUCCESS) {
    result = MapPhysical(handle, *bytes, granularity, device, &address);
    driver.cuMemRelease(handle);  // the mapping keeps the memory
  }
  if (result != CUDA_SUCCESS) {
    COMMPOOL_NCCL_WARN("ncclMemAlloc of %zu bytes on device %d failed with CUDA error %d", size, device, result);
    return ncclUnhandledCudaError;
  }
  *pointer = reinterpret_cast<void*>(address);
  return ncclSuccess;
}

ncclResult_t Free(void* pointer) {
  const DriverFunctions& driver = GetDriver();
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (VirtualMemoryOff()) {
    return driver.cuMemFree(address) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
  }
  commpoolEmulatorMapping mapping = {};
  const bool found = driver.commpoolEmulatorFindMapping(address, &mapping) == CUDA_SUCCESS;
  if (!found || mapping.physical == 0 || mapping.base != address) {
    // NCCL trusts the pointer (src/allocator.cc).
    driver.commpoolEmulatorReport("ncclMemFree of memory that ncclMemAlloc did not make", "");
    return ncclInvalidArgument;
  }
  if (driver.cuMemUnmap(mapping.base, mapping.bytes) != CUDA_SUCCESS ||
      driver.cuMemAddressFree(mapping.base, mapping.bytes) != CUDA_SUCCESS) {
    return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

}  // namespace

}  // namespace commpool::internal::emulated_nccl

using namespace commpool::internal::emulated_nccl;  // NOLINT: this file defines nccl.h's functions with it

COMMPOOL_NCCL_API ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  if (const ncclResult_t injected = EnterCall("ncclMemAlloc"); injected != ncclSuccess) return injected;
  if (ptr == nullptr) return ncclInvalidArgument;
  *ptr = nullptr;
  return size == 0 ? ncclSuccess : Allocate(ptr, size);
}
COMMPOOL_NCCL_PROFILED(ncclMemAlloc);

COMMPOOL_NCCL_API ncclResult_t ncclMemFree(void* ptr) {
  if (const ncclResult_t injected = EnterCall("ncclMemFree"); injected != ncclSuccess) return injected;
  return ptr == nullptr ? ncclSuccess : Free(ptr);
}
COMMPOOL_NCCL_PROFILED(ncclMemFree);
