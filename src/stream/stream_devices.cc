#include "src/stream/stream_devices.h"

#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool::internal {

Result<int> StreamDevices::CurrentDevice() const {
  // Without a context cuCtxGetDevice would fail, and a sanitizer report that as the program's error.
  CUcontext context = nullptr;
  Status status = CheckCuda(driver_, driver_.cuda.cuCtxGetCurrent(&context), {.call = "cuCtxGetCurrent"});
  if (!status.ok()) return status;
  if (context == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "no CUDA context is current on this thread, so a default stream names no device: call cudaSetDevice "
                  "first, or name the device");
  }
  CUdevice device = 0;
  status = CheckCuda(driver_, driver_.cuda.cuCtxGetDevice(&device), {.call = "cuCtxGetDevice"});
  if (!status.ok()) return status;
  return device;
}

Result<int> StreamDevices::DeviceOf(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CurrentDevice();
  {
    MutexLock lock(mutex_);
    const auto found = devices_.find(stream);
    if (found != devices_.end()) return found->second;
  }
  // The driver answers only where some context is current; a thread that has none yet borrows device 0's.
  Result<PrimaryContext> borrowed = PrimaryContext::Retain(driver_, 0);
  if (!borrowed.ok()) return borrowed.status();
  ContextGuard put_back(driver_);
  if (!CurrentDevice().ok()) driver_.cuda.cuCtxSetCurrent(borrowed->get());
  CUcontext context = nullptr;
  Status status = CheckCuda(driver_, driver_.cuda.cuStreamGetCtx(stream, &context),
                            {.call = "cuStreamGetCtx", .likely_cause = "the stream was destroyed or never made"});
  if (!status.ok()) return status;
  ContextGuard guard(driver_, context);
  Result<int> device = CurrentDevice();
  if (!device.ok()) return device.status();
  MutexLock lock(mutex_);
  devices_.emplace(stream, *device);
  return *device;
}

void StreamDevices::Forget(CUstream stream) {
  MutexLock lock(mutex_);
  devices_.erase(stream);
}

}  // namespace commpool::internal
