// ncclMemAlloc and ncclMemFree as a program sees them under `commpool run`.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "src/interpose/nccl_memory/pool_library.h"
#include "src/interpose/nccl_memory/pooled_memory.h"
#include "src/interpose/preload/process_name.h"
#include "src/interpose/preload/symbols.h"

namespace commpool::run {

namespace {

const Settings& TheSettings() {
  static const auto* const settings = new Settings(Settings::FromText(std::getenv("COMMPOOL_RUN")));
  return *settings;
}

// Never destroyed: a program may free in its last destructors.
PooledMemory& Memory() {
  static auto* const memory = new PooledMemory(TheSettings());
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

void SayAtExit() {
  if (preload::IsForked()) return;
  if (Memory().calls() != 0) {
    preload::Write("commpool run: " + preload::NameOfProcess() + ": ncclMemAlloc from pools\n" + Memory().Statistics());
  } else if (dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    preload::Say("run", "nobody called ncclMemAlloc");
  } else if (TheSettings().started_by == getpid()) {
    preload::Say("run",
                 "no libnccl.so.2 was loaded, and nobody called ncclMemAlloc by its name: where this process used "
                 "NCCL it has one of its own, linked statically, whose memory stayed its own; what it starts "
                 "tells for itself");
  }
}

__attribute__((constructor)) void Begin() {
  if (TheSettings().asked) std::atexit(&SayAtExit);
}

}  // namespace

}  // namespace commpool::run

using namespace commpool;  // NOLINT: C on the outside

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  static const auto real = reinterpret_cast<decltype(&ncclMemAlloc)>(preload::FindDefinition("ncclMemAlloc"));
  // Without a size it is not memory that NCCL is asked for, and it answers so.
  if (!run::TheSettings().asked || pointer == nullptr || bytes == 0) {
    return real == nullptr ? ncclInvalidArgument : real(pointer, bytes);
  }
  if (const std::string& why = run::PoolLibrary::Get().why_missing; !why.empty()) {
    preload::Say("run", "no pools: " + why);
    return ncclSystemError;
  }
  return run::ResultOf(run::Memory().Allocate(run::CurrentDevice(), run::CountDevices(), bytes, pointer));
}

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclMemFree(void* pointer) {
  static const auto real = reinterpret_cast<decltype(&ncclMemFree)>(preload::FindDefinition("ncclMemFree"));
  if (run::TheSettings().asked && pointer != nullptr) {
    const commpool_status status = run::Memory().Free(pointer);
    if (status == COMMPOOL_INVALID_ARGUMENT) return run::RefuseToFree(pointer);
    if (status != COMMPOOL_NOT_FOUND) return run::ResultOf(status);
    if (!run::IsMemory(pointer)) return run::RefuseToFree(pointer);
  }
  return real == nullptr ? ncclInvalidArgument : real(pointer);
}
