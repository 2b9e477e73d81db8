#include "src/stream/stream_devices.h"

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/driver/handles.h"

namespace commpool::internal {

Result<int> StreamDevices::CurrentDevice() const {
  // Without a context cuCtxGetDevice would fail, and a sanitizer would report that as the program's error.
  CUcontext context = nullptr;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuCtxGetCurrent(&context), {.call = "cuCtxGetCurrent"}));
  if (context == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  "no CUDA context is current on this thread, so a default stream names no device: call cudaSetDevice "
                  "first, or name the device");
  }
  CUdevice device = 0;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuCtxGetDevice(&device), {.call = "cuCtxGetDevice"}));
  return device;
}

void StreamDevices::Forget(CUstream stream) {
  MutexLock lock(mutex_);
  devices_.erase(stream);
}

Result<int> StreamDevices::DeviceOf(CUstream stream, StreamKey key) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CurrentDevice();
  {
    MutexLock lock(mutex_);
    const auto found = devices_.find(stream);
    if (found != devices_.end() && found->second.key == key) return found->second.device;
  }
  // The driver answers only where some context is current. A thread without one borrows that of device 0.
  const PrimaryContext borrowed = COMMPOOL_TRY(PrimaryContext::Retain(driver_, 0));
  ContextGuard put_back(driver_);
  if (!CurrentDevice().ok()) driver_.cuda.cuCtxSetCurrent(borrowed.get());
  CUcontext context = nullptr;
  COMMPOOL_TRY(CheckCuda(driver_, driver_.cuda.cuStreamGetCtx(stream, &context),
                         {.call = "cuStreamGetCtx", .likely_cause = "the stream was destroyed or never made"}));
  ContextGuard guard(driver_, context);
  const int device = COMMPOOL_TRY(CurrentDevice());
  MutexLock lock(mutex_);
  devices_[stream] = {key, device};
  return device;
}

}  // namespace commpool::internal
