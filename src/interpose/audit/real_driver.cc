#include "src/interpose/audit/real_driver.h"

#include "src/interpose/audit/ledger.h"
#include "src/interpose/preload/symbols.h"

#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)  // cuda.h maps many names to a version

namespace commpool::audit {

namespace {

RealDriver LookUp() {
  RealDriver driver;
#define COMMPOOL_REAL(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(preload::FindDefinition(COMMPOOL_TEXT(name)))
  COMMPOOL_REAL(cuCtxGetCurrent);
  COMMPOOL_REAL(cuCtxSetCurrent);
  COMMPOOL_REAL(cuCtxGetDevice);
  COMMPOOL_REAL(cuDeviceGetPCIBusId);
  COMMPOOL_REAL(cuDeviceGetMemPool);
  COMMPOOL_REAL(cuDeviceGetGraphMemAttribute);
  COMMPOOL_REAL(cuMemPoolGetAttribute);
  COMMPOOL_REAL(cuMemGetInfo);
  COMMPOOL_REAL(cuMemGetAddressRange);
  COMMPOOL_REAL(cuStreamIsCapturing);
  COMMPOOL_REAL(cuStreamQuery);
  COMMPOOL_REAL(cuEventCreate);
  COMMPOOL_REAL(cuEventRecord);
  COMMPOOL_REAL(cuEventQuery);
  COMMPOOL_REAL(cuEventDestroy);
  COMMPOOL_REAL(cuThreadExchangeStreamCaptureMode);
  COMMPOOL_REAL(cuDevicePrimaryCtxGetState);
  COMMPOOL_REAL(cuGetErrorName);
#undef COMMPOOL_REAL
  return driver;
}

}  // namespace

const RealDriver& RealDriver::Get() {
  static const RealDriver* const driver = new RealDriver(LookUp());  // used until the process is gone
  return *driver;
}

int RealDriver::CurrentDevice() const {
  CUdevice device = kNoDevice;
  if (cuCtxGetDevice == nullptr || cuCtxGetDevice(&device) != CUDA_SUCCESS) return kNoDevice;
  return device;
}

std::optional<bool> RealDriver::IsCapturing(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (cuStreamIsCapturing == nullptr || cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) return std::nullopt;
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::string RealDriver::ErrorName(CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "CUDA error";
  return std::string(name) + " (" + std::to_string(result) + ")";
}

WithContext::WithContext(const RealDriver& driver, CUcontext context) : driver_(driver) {
  if (context == nullptr || driver_.cuCtxGetCurrent == nullptr || driver_.cuCtxSetCurrent == nullptr) return;
  if (driver_.cuCtxGetCurrent(&before_) != CUDA_SUCCESS || before_ == context) return;
  changed_ = driver_.cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

WithContext::~WithContext() {
  if (changed_) driver_.cuCtxSetCurrent(before_);
}

}  // namespace commpool::audit
