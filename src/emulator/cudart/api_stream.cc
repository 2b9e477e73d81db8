// Streams, events, host functions.
#include <memory>

#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

struct Callback {
  cudaStream_t stream;
  cudaStreamCallback_t function;
  void* context;
};

void CallBack(void* pointer) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(pointer));
  callback->function(callback->stream, cudaSuccess, callback->context);
}

}  // namespace

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return InContext(
      [&](const DriverFunctions& driver) { return driver.cuStreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamDestroy(stream); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamQuery(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* context) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuLaunchHostFunc(stream, function, context); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* context,
                                  unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = driver.cuStreamIsCapturing(stream, &status);
    if (result != CUDA_SUCCESS) return result;
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto callback = std::make_unique<Callback>(Callback{stream, function, context});
    result = driver.cuLaunchHostFunc(stream, CallBack, callback.get());
    if (result == CUDA_SUCCESS) callback.release();
    return result;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventDestroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  return Refuse("cudaEventRecordWithFlags", "external events in captures are not emulated");
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return InContext([&](const DriverFunctions& driver) { return driver.cuEventElapsedTime(milliseconds, start, end); });
}
