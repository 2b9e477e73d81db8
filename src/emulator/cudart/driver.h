// The emulated CUDA driver for the emulated runtime, which finds it at run time and never links it. Any thread.
#pragma once

#include <cuda.h>

#include "src/emulator/runtime_extension.h"

namespace commpool::internal::emulated_cudart {

struct DriverFunctions {
#define COMMPOOL_DRIVER_FUNCTION(name) decltype(&::name) name = nullptr;
#include "src/emulator/cudart/driver_functions.inc"
#undef COMMPOOL_DRIVER_FUNCTION
};

// Returns the driver of this process. Aborts with the reason if there is none, or if it is a real one.
const DriverFunctions& Driver();

}  // namespace commpool::internal::emulated_cudart
