// Devices and peers.
#include <cstring>

#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

// Owns nothing: writes attributes of one device into a cudaDeviceProp, for cudaGetDeviceProperties.
class Attributes {
 public:
  explicit Attributes(int device) : device_(device) {}

  int operator[](CUdevice_attribute attribute) const {
    int value = 0;
    Driver().cuDeviceGetAttribute(&value, attribute, device_);
    return value;
  }

 private:
  int device_;
};

void DescribeCores(const Attributes& of, cudaDeviceProp& device) {
  device.major = of[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
  device.minor = of[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
  device.multiProcessorCount = of[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  device.warpSize = of[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  device.regsPerBlock = of[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
  device.regsPerMultiprocessor = of[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR];
  device.maxThreadsPerBlock = of[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  device.maxThreadsPerMultiProcessor = of[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  device.maxBlocksPerMultiProcessor = of[CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR];
  device.maxThreadsDim[0] = of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X];
  device.maxThreadsDim[1] = of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y];
  device.maxThreadsDim[2] = of[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z];
  device.maxGridSize[0] = of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X];
  device.maxGridSize[1] = of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y];
  device.maxGridSize[2] = of[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z];
  device.concurrentKernels = of[CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS];
  device.cooperativeLaunch = of[CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH];
  device.clusterLaunch = of[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH];
  device.computePreemptionSupported = of[CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED];
  device.streamPrioritiesSupported = of[CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED];
}

size_t Bytes(int value) { return static_cast<size_t>(value); }

void DescribeMemory(const Attributes& of, cudaDeviceProp& device) {
  device.sharedMemPerBlock = Bytes(of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK]);
  device.sharedMemPerBlockOptin = Bytes(of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN]);
  device.sharedMemPerMultiprocessor = Bytes(of[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR]);
  device.reservedSharedMemPerBlock = Bytes(of[CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK]);
  device.totalConstMem = Bytes(of[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY]);
  device.memPitch = Bytes(of[CU_DEVICE_ATTRIBUTE_MAX_PITCH]);
  device.textureAlignment = Bytes(of[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT]);
  device.memoryBusWidth = of[CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH];
  device.l2CacheSize = of[CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE];
  device.globalL1CacheSupported = of[CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED];
  device.localL1CacheSupported = of[CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED];
  device.ECCEnabled = of[CU_DEVICE_ATTRIBUTE_ECC_ENABLED];
  device.asyncEngineCount = of[CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT];
  device.unifiedAddressing = of[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING];
  device.canMapHostMemory = of[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY];
  device.memoryPoolsSupported = of[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED];
  device.gpuDirectRDMASupported = of[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED];
}

void DescribePlace(const Attributes& of, cudaDeviceProp& device) {
  device.pciBusID = of[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
  device.pciDeviceID = of[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
  device.pciDomainID = of[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
  device.hostNumaId = of[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID];
  device.deviceNumaId = -1;  // no emulated GPU is a NUMA node
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return InDriver([&](const DriverFunctions& driver) { return driver.cuDeviceGetCount(count); });
}

cudaError_t cudaGetDevice(int* device) {
  return Keep(device == nullptr ? cudaErrorInvalidValue : CurrentDevice(device));
}

cudaError_t cudaSetDevice(int ordinal) {
  return InDriver([&](const DriverFunctions& driver) {
    CUdevice device = 0;
    const cudaError_t error = ErrorOf(driver.cuDeviceGet(&device, ordinal));
    return error != cudaSuccess ? error : UseDevice(device);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int ordinal) {
  return InDriver([&](const DriverFunctions& driver) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdevice handle = 0;
    const CUresult result = driver.cuDeviceGet(&handle, ordinal);
    if (result != CUDA_SUCCESS) return result;
    std::memset(device, 0, sizeof(*device));
    driver.cuDeviceGetName(device->name, sizeof(device->name), handle);
    driver.cuDeviceGetUuid(&device->uuid, handle);
    driver.cuDeviceTotalMem(&device->totalGlobalMem, handle);
    const Attributes attributes(handle);
    DescribeCores(attributes, *device);
    DescribeMemory(attributes, *device);
    DescribePlace(attributes, *device);
    return CUDA_SUCCESS;
  });
}

// The two APIs number attributes alike.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return InDriver([&](const DriverFunctions& driver) {
    return driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return InDriver([&](const DriverFunctions& driver) { return driver.cuDeviceGetPCIBusId(text, length, device); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return InDriver([&](const DriverFunctions& driver) { return driver.cuDeviceCanAccessPeer(can, device, peer); });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) {
    CUcontext context = nullptr;
    const cudaError_t error = PrimaryContext(peer, &context);
    return error != cudaSuccess ? error : ErrorOf(driver.cuCtxEnablePeerAccess(context, flags));
  });
}

cudaError_t cudaDeviceSynchronize() {
  return InContext([](const DriverFunctions& driver) { return driver.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuCtxGetStreamPriorityRange(least, greatest); });
}
