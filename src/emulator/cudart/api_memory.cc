// Memory, memory pools, pointers.
#include <cstdint>

#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

constexpr const char* kNoManagedMemory = "memory that host and devices share by faults is not emulated";
constexpr const char* kNoRegistration = "the emulator cannot pin memory that a program made; cudaHostAlloc makes some";

// A request for 0 bytes succeeds and gives no memory, as in NVIDIA's runtime.
template <typename Allocate>
cudaError_t AllocateInto(void** pointer, size_t bytes, Allocate allocate) {
  return InContext([&](const DriverFunctions& driver) {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : allocate(driver);
  });
}

CUdeviceptr* AddressIn(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuMemGetInfo(free_bytes, total_bytes); });
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return AllocateInto(pointer, bytes,
                      [&](const DriverFunctions& driver) { return driver.cuMemAlloc(AddressIn(pointer), bytes); });
}

cudaError_t cudaFree(void* pointer) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuMemFree(Address(pointer)); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return AllocateInto(pointer, bytes,
                      [&](const DriverFunctions& driver) { return driver.cuMemAllocHost(pointer, bytes); });
}

// Every pinned allocation is mapped and portable in the emulator.
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  return (flags & ~kKnown) != 0 ? Keep(cudaErrorInvalidValue) : cudaMallocHost(pointer, bytes);
}

cudaError_t cudaFreeHost(void* pointer) {
  return InContext(
      [&](const DriverFunctions& driver) { return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(pointer); });
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return AllocateInto(pointer, bytes, [&](const DriverFunctions& driver) {
    return driver.cuMemAllocAsync(AddressIn(pointer), bytes, stream);
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeAsync(Address(pointer), stream);
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return InDriver([&](const DriverFunctions& driver) { return driver.cuDeviceGetDefaultMemPool(pool, device); });
}

// The two APIs give the attributes of pools the same numbers.
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return InDriver([&](const DriverFunctions& driver) {
    return driver.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return InDriver([&](const DriverFunctions& driver) {
    return driver.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions, size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return InDriver([&](const DriverFunctions& driver) {
    return driver.cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(descriptions), count);
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  return InDriver([&](const DriverFunctions& driver) { return driver.cuMemPoolTrimTo(pool, bytes); });
}

// Emulated graphs have no memory of their own.
cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType, void* value) {
  return InDriver([&](const DriverFunctions& driver) {
    CUdevice handle = 0;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<uint64_t*>(value) = 0;
    return driver.cuDeviceGet(&handle, device);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  const bool resets = attribute == cudaGraphMemAttrUsedMemHigh || attribute == cudaGraphMemAttrReservedMemHigh;
  if (!resets || value == nullptr || *static_cast<uint64_t*>(value) != 0) return Keep(cudaErrorInvalidValue);
  uint64_t none = 0;
  return cudaDeviceGetGraphMemAttribute(device, attribute, &none);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return InContext([&](const DriverFunctions& driver) {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *attributes = {};
    unsigned type = 0;
    if (driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(pointer)) != CUDA_SUCCESS) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = const_cast<void*>(pointer);
      return CUDA_SUCCESS;
    }
    const bool host = type == CU_MEMORYTYPE_HOST;
    attributes->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    CUdeviceptr reached = 0;  // stays null if the current device has no access
    driver.cuPointerGetAttribute(&reached, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Address(pointer));
    attributes->devicePointer = reinterpret_cast<void*>(reached);
    attributes->hostPointer = host ? const_cast<void*>(pointer) : nullptr;
    return driver.cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Address(pointer));
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  return InContext(
      [&](const DriverFunctions& driver) { return driver.cuMemHostGetDevicePointer(AddressIn(device), host, flags); });
}

// FBGEMM's library imports these three.
cudaError_t cudaDeviceGetByPCIBusId(int*, const char*) {
  return Refuse("cudaDeviceGetByPCIBusId", "emulated devices are found by their numbers");
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return Refuse("cudaMemAdvise", kNoManagedMemory);
}
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned int, cudaStream_t) {
  return Refuse("cudaMemPrefetchAsync", kNoManagedMemory);
}
cudaError_t cudaMallocManaged(void**, size_t, unsigned int) { return Refuse("cudaMallocManaged", kNoManagedMemory); }
cudaError_t cudaHostRegister(void*, size_t, unsigned int) { return Refuse("cudaHostRegister", kNoRegistration); }
cudaError_t cudaHostUnregister(void*) { return Refuse("cudaHostUnregister", kNoRegistration); }
