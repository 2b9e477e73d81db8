// The driver itself, behind what the program sees of it. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>

namespace commpool::audit {

// What an audit asks of the driver for itself. A null member: this driver lacks it.
struct RealDriver {
  decltype(&::cuCtxGetCurrent) cuCtxGetCurrent = nullptr;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent = nullptr;
  decltype(&::cuCtxGetDevice) cuCtxGetDevice = nullptr;
  decltype(&::cuDeviceGetPCIBusId) cuDeviceGetPCIBusId = nullptr;
  decltype(&::cuDeviceGetMemPool) cuDeviceGetMemPool = nullptr;
  decltype(&::cuDeviceGetGraphMemAttribute) cuDeviceGetGraphMemAttribute = nullptr;
  decltype(&::cuMemPoolGetAttribute) cuMemPoolGetAttribute = nullptr;
  decltype(&::cuMemGetInfo) cuMemGetInfo = nullptr;
  decltype(&::cuMemGetAddressRange) cuMemGetAddressRange = nullptr;
  decltype(&::cuStreamIsCapturing) cuStreamIsCapturing = nullptr;
  decltype(&::cuStreamQuery) cuStreamQuery = nullptr;
  decltype(&::cuEventCreate) cuEventCreate = nullptr;
  decltype(&::cuEventRecord) cuEventRecord = nullptr;
  decltype(&::cuEventQuery) cuEventQuery = nullptr;
  decltype(&::cuEventDestroy) cuEventDestroy = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode = nullptr;
  decltype(&::cuDevicePrimaryCtxGetState) cuDevicePrimaryCtxGetState = nullptr;
  decltype(&::cuGetErrorName) cuGetErrorName = nullptr;

  // Looked up at the first call, in the driver that the process has loaded; all null while there is none.
  static const RealDriver& Get();

  // The device of the calling thread's context; kNoDevice without one.
  int CurrentDevice() const;
  // Nothing where the driver does not tell.
  std::optional<bool> IsCapturing(CUstream stream) const;
  // "CUDA_ERROR_NO_DEVICE (100)".
  std::string ErrorName(CUresult result) const;
};

// Makes a context current where none of its device is, and puts back what was.
class WithContext {
 public:
  WithContext(const RealDriver& driver, CUcontext context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

 private:
  const RealDriver& driver_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

}  // namespace commpool::audit
