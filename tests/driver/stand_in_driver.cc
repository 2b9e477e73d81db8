// A libcuda.so.1 in place of a real driver that is old or finds no device. It can do nothing else.
#include "tests/driver/stand_in_driver.h"

#include <cstring>

#define COMMPOOL_EXPORTED extern "C" __attribute__((visibility("default")))

COMMPOOL_EXPORTED StandInDriver commpoolStandInDriver;
StandInDriver commpoolStandInDriver = {CUDA_SUCCESS, 0, nullptr};

namespace {

CUresult Init(unsigned int) { return commpoolStandInDriver.init_result; }

CUresult DeviceGetCount(int* count) {
  *count = commpoolStandInDriver.devices;
  return CUDA_SUCCESS;
}

CUresult GetErrorName(CUresult, const char** name) {
  *name = "THE_STAND_INS_ERROR";
  return CUDA_SUCCESS;
}

CUresult Unable() { return CUDA_ERROR_UNKNOWN; }

}  // namespace

COMMPOOL_EXPORTED CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                               CUdriverProcAddressQueryResult* found) {
  if (commpoolStandInDriver.lacking != nullptr && std::strcmp(name, commpoolStandInDriver.lacking) == 0) {
    *function = nullptr;
    *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
  }
  *function = reinterpret_cast<void*>(&Unable);
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(&Init);
  if (std::strcmp(name, "cuDeviceGetCount") == 0) *function = reinterpret_cast<void*>(&DeviceGetCount);
  if (std::strcmp(name, "cuGetErrorName") == 0) *function = reinterpret_cast<void*>(&GetErrorName);
  *found = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}
