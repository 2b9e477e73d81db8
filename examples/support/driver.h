// The driver that an example runs on: the real one, or where there is no GPU the emulator.
//
// A program of yours links libcuda and libnccl and needs none of this: calls.cc stands in for that link, so that the
// examples start on any machine.
#ifndef COMMPOOL_EXAMPLES_SUPPORT_DRIVER_H_
#define COMMPOOL_EXAMPLES_SUPPORT_DRIVER_H_

#include <cuda.h>
#include <nccl.h>

#include <string>

#include "src/driver/loader.h"

namespace examples {

namespace internal = commpool::internal;  // the loader: a program of yours links CUDA and NCCL instead

// The first call opens the driver and NCCL, for this program and for commpool alike; later ones return the same. An
// explicit choice goes before COMMPOOL_DRIVER. Throws commpool::Error. Any thread.
const internal::Driver& TheDriver(internal::DriverChoice choice = internal::DriverChoice::kAuto);

// "driver: CUDA driver 13.0, 4 devices, NCCL 2.28.9".
std::string DriverLine();

// Throw commpool::Error where a call of the program's own failed.
void Check(CUresult result);
void Check(ncclResult_t result);

}  // namespace examples

#endif  // COMMPOOL_EXAMPLES_SUPPORT_DRIVER_H_
