// The few functions of NVML that PyTorch calls, on top of the emulated driver. The build does not need NVML's header:
// the types here have the same sizes.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/emulator/driver_library.h"
#include "src/emulator/extension.h"

namespace {

using nvmlReturn_t = int;
using nvmlDevice_t = void*;

constexpr nvmlReturn_t kSuccess = 0;
constexpr nvmlReturn_t kInvalidArgument = 2;
constexpr nvmlReturn_t kNotSupported = 3;
constexpr nvmlReturn_t kNotFound = 6;
constexpr nvmlReturn_t kTooSmall = 7;

constexpr unsigned char kFabricNotSupported = 0;

// All versions of nvmlGpuFabricInfoV_t have these fields.
struct FabricInfo {
  unsigned version;
  unsigned char cluster[16];
  nvmlReturn_t status;
  unsigned clique;
  unsigned char state;
};

template <typename Function>
Function* DriverFunction(const char* name) {
  static void* const library = commpool::internal::FindDriverLibrary("NVML");
  return reinterpret_cast<Function*>(commpool::internal::FindDriverSymbol("NVML", library, name));
}

// Asks the description, because NVML does not start the driver.
unsigned DeviceCount() {
  static const auto setting = DriverFunction<decltype(commpoolEmulatorSetting)>("commpoolEmulatorSetting");
  return static_cast<unsigned>(std::strtoul(setting("devices"), nullptr, 10));
}

// Numbers of devices begin at 1, like their buses.
nvmlReturn_t DeviceOfNumber(unsigned long number, nvmlDevice_t* device) {
  if (device == nullptr) return kInvalidArgument;
  if (number < 1 || number > DeviceCount()) return kNotFound;
  *device = reinterpret_cast<nvmlDevice_t>(number);
  return kSuccess;
}

unsigned NumberOf(nvmlDevice_t device) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

nvmlReturn_t nvmlInit_v2() { return kSuccess; }
nvmlReturn_t nvmlInit() { return kSuccess; }
nvmlReturn_t nvmlShutdown() { return kSuccess; }

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kTooSmall:
      return "Insufficient Size";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  return DriverFunction<decltype(cuDriverGetVersion)>("cuDriverGetVersion")(version) == CUDA_SUCCESS ? kSuccess
                                                                                                     : kNotSupported;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  if (count == nullptr) return kInvalidArgument;
  *count = DeviceCount();
  return kSuccess;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  return index < DeviceCount() ? DeviceOfNumber(index + 1ul, device) : kInvalidArgument;
}

// Reads DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal. Only the bus differs between devices.
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* device) {
  const char* const colon = text == nullptr ? nullptr : std::strchr(text, ':');
  return colon == nullptr ? kInvalidArgument : DeviceOfNumber(std::strtoul(colon + 1, nullptr, 16), device);
}

// Writes the bytes that cuDeviceGetUuid returns.
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned capacity) {
  if (text == nullptr) return kInvalidArgument;
  const int length = std::snprintf(text, capacity, "GPU-%02x000000-0000-0000-0000-000000000000", NumberOf(device));
  return static_cast<unsigned>(length) < capacity ? kSuccess : kTooSmall;
}

// The emulator does not know what other processes use.
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned* count, void*) {
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t, void*) { return kNotSupported; }
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned, int*) { return kNotSupported; }
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned, int*) { return kNotSupported; }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t, unsigned, void*) { return kNotSupported; }

// No emulated GPU is in a fabric of several hosts.
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, FabricInfo* info) {
  if (info == nullptr) return kInvalidArgument;
  *info = {info->version, {}, kNotSupported, 0, kFabricNotSupported};
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
