// What every emulated runtime function begins and ends with: the driver's start, a current context, the last error.
//
// As NVIDIA's runtime it works on primary contexts, which it makes when a thread first needs one and keeps until the
// process ends. A context that the program made current by the driver API is taken as it is.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_RUNTIME_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_RUNTIME_H_

// cuda_runtime_api.h's functions are this library's exports.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "src/emulator/cudart/driver.h"

namespace commpool::internal::emulated_cudart {

// The two APIs number their errors alike.
inline cudaError_t ErrorOf(CUresult result) { return static_cast<cudaError_t>(result); }

// Keeps an error for cudaGetLastError, and passes it on.
cudaError_t Keep(cudaError_t error);
inline cudaError_t Keep(CUresult result) { return Keep(ErrorOf(result)); }
cudaError_t LastError();
// Errors that lost the context stay.
void ForgetLastError();

// Starts the driver, as every call does that asks for devices.
cudaError_t StartDriver();

// Also gives the thread the primary context of its device, where it has no context.
cudaError_t EnterContext();

// The device of the thread's context, or the one that it would get.
cudaError_t CurrentDevice(int* device);
// Makes the device's primary context current.
cudaError_t UseDevice(int device);
cudaError_t PrimaryContext(int device, CUcontext* context);

// Runs `body`, which gives a CUresult or a cudaError_t, with a current context.
template <typename Body>
cudaError_t InContext(Body body) {
  const cudaError_t entered = EnterContext();
  return entered != cudaSuccess ? Keep(entered) : Keep(body(Driver()));
}

// The same where a started driver is enough.
template <typename Body>
cudaError_t InDriver(Body body) {
  const cudaError_t started = StartDriver();
  return started != cudaSuccess ? Keep(started) : Keep(body(Driver()));
}

// What this emulator refuses by design: "not supported", and a line to stderr once for each function.
cudaError_t Refuse(const char* function, const char* reason);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_RUNTIME_H_
