// Memory and events of other processes. The handles of the two APIs are the same bytes.
#include <cstring>

#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

template <typename To, typename From>
To SameBytes(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to = {};
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), reinterpret_cast<CUdeviceptr>(pointer));
  });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(pointer), SameBytes<CUipcMemHandle>(handle), flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuIpcCloseMemHandle(reinterpret_cast<CUdeviceptr>(pointer));
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event);
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return InContext([&](const DriverFunctions& driver) {
    return driver.cuIpcOpenEventHandle(event, SameBytes<CUipcEventHandle>(handle));
  });
}
