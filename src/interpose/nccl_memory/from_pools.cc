#include "src/interpose/nccl_memory/from_pools.h"

#include <cuda.h>

#include <array>
#include <cstdio>

#include "src/interpose/nccl_memory/pool_library.h"
#include "src/interpose/nccl_memory/pooled_memory.h"
#include "src/interpose/preload/process_name.h"
#include "src/interpose/preload/symbols.h"

namespace commpool::run {

namespace {

// Never destroyed: a program may free in its last destructors.
PooledMemory& Memory() {
  static auto* const memory = new PooledMemory(Settings::Get());
  return *memory;
}

// As cudaGetDevice, which NCCL asks: the first device where none is current yet.
int CurrentDevice() {
  static const auto ask = reinterpret_cast<decltype(&cuCtxGetDevice)>(preload::FindDefinition("cuCtxGetDevice"));
  CUdevice device = 0;
  return ask != nullptr && ask(&device) == CUDA_SUCCESS ? device : 0;
}

int CountDevices() {
  static const auto ask = reinterpret_cast<decltype(&cuDeviceGetCount)>(preload::FindDefinition("cuDeviceGetCount"));
  int devices = 0;
  return ask != nullptr && ask(&devices) == CUDA_SUCCESS ? devices : 0;
}

// Whether the driver knows the address in this process.
bool IsMemory(const void* pointer) {
  static const auto ask =
      reinterpret_cast<decltype(&cuPointerGetAttribute)>(preload::FindDefinition("cuPointerGetAttribute"));
  int device = 0;
  return ask == nullptr || ask(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reinterpret_cast<CUdeviceptr>(pointer)) !=
                               CUDA_ERROR_INVALID_VALUE;
}

// NCCL takes the memory at the address away, whoever made it.
ncclResult_t RefuseToFree(const void* pointer) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "ncclMemFree: no allocation begins at %p", pointer);
  preload::Say("run", text.data());
  return ncclInvalidArgument;
}

ncclResult_t ResultOf(commpool_status status) {
  if (status == COMMPOOL_OK) return ncclSuccess;
  preload::Say("run", PoolLibrary::Get().last_error());
  return status == COMMPOOL_INVALID_ARGUMENT ? ncclInvalidArgument : ncclUnhandledCudaError;
}

}  // namespace

// Without a size it is not memory that NCCL is asked for, and it answers so.
std::optional<ncclResult_t> AllocateFromPools(void** pointer, size_t bytes) {
  if (Settings::Get().nccl_memory == NcclMemory::kOwn || pointer == nullptr || bytes == 0) return std::nullopt;
  if (const std::string& why = PoolLibrary::Get().why_missing; !why.empty()) {
    preload::Say("run", "no pools: " + why);
    return ncclSystemError;
  }
  return ResultOf(Memory().Allocate(CurrentDevice(), CountDevices(), bytes, pointer));
}

std::optional<ncclResult_t> FreeToPools(void* pointer) {
  if (Settings::Get().nccl_memory == NcclMemory::kOwn || pointer == nullptr) return std::nullopt;
  const commpool_status status = Memory().Free(pointer);
  if (status == COMMPOOL_INVALID_ARGUMENT) return RefuseToFree(pointer);
  if (status != COMMPOOL_NOT_FOUND) return ResultOf(status);
  return IsMemory(pointer) ? std::nullopt : std::make_optional(RefuseToFree(pointer));
}

std::string TableOfPools() { return Memory().calls() == 0 ? "" : Memory().Statistics(); }

}  // namespace commpool::run
