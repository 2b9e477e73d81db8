// Every emulated runtime function begins and ends with these: they start the driver, make a context current, and keep
// the last error.
//
// Like NVIDIA's runtime it uses primary contexts. It makes one when a thread first needs it, and keeps it until the
// process ends. If the program made a context current through the driver API, the runtime uses that one.
#pragma once

// cuda_runtime_api.h's functions are this library's exports.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "src/emulator/cudart/driver.h"

namespace commpool::internal::emulated_cudart {

// The two APIs give errors the same numbers.
inline cudaError_t ErrorOf(CUresult result) { return static_cast<cudaError_t>(result); }

// Stores an error for cudaGetLastError, and returns it.
cudaError_t Keep(cudaError_t error);
inline cudaError_t Keep(CUresult result) { return Keep(ErrorOf(result)); }
cudaError_t LastError();
// Keeps an error that lost the context.
void ForgetLastError();

// Starts the driver. Every call that asks about devices does this.
cudaError_t StartDriver();

// Starts the driver. A thread without a context gets the primary context of its device.
cudaError_t EnterContext();

// Returns the device of the thread's context; without one, the device whose context it would get.
cudaError_t CurrentDevice(int* device);
// Makes the device's primary context current.
cudaError_t UseDevice(int device);
cudaError_t PrimaryContext(int device, CUcontext* context);

// Runs `body`, which returns a CUresult or a cudaError_t, with a current context.
template <typename Body>
cudaError_t InContext(Body body) {
  const cudaError_t entered = EnterContext();
  return entered != cudaSuccess ? Keep(entered) : Keep(body(Driver()));
}

// The same for a `body` that needs a started driver, but no context.
template <typename Body>
cudaError_t InDriver(Body body) {
  const cudaError_t started = StartDriver();
  return started != cudaSuccess ? Keep(started) : Keep(body(Driver()));
}

// Answers "not supported" for what this emulator refuses by design, and prints one line to stderr for each function.
cudaError_t Refuse(const char* function, const char* reason);

}  // namespace commpool::internal::emulated_cudart
