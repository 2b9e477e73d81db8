// A "kernel" that is a host function over declared ranges, for the CLI and tests.
//
// On the emulator it runs on the device's worker and sees only what it declared. On a real device `Launch` copies the
// ranges out, runs a stream-ordered host function and copies back what it wrote: slow, but with the same result. Work
// runs in stream order; `Launch` returns before it has run.
//
// On a stream that captures, the launch becomes part of the graph, which owns the function and its copies: only one
// executable graph at a time may replay it.
#pragma once

#include <cuda.h>

#include <functional>
#include <vector>

#include "commpool/status.h"
#include "src/emulator/extension.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

using DeviceRange = commpoolEmulatorRange;

// Host pointers to the declared ranges, in the order of declaration. A range that is read and written appears in both
// lists; at the start the written copy has the device's bytes only if the range is also declared as read.
using KernelFunction = std::function<void(const std::vector<const void*>& reads, const std::vector<void*>& writes)>;

// `function` may call no CUDA and no NCCL. kInvalidArgument for an empty range, else the driver's errors.
//
// On a real device the copies of a finished launch are freed by the next launch, by FreeFinishedLaunches, or at exit.
Status Launch(const Driver& driver, CUstream stream, const std::vector<DeviceRange>& reads,
              const std::vector<DeviceRange>& writes, KernelFunction function);

void FreeFinishedLaunches();

}  // namespace commpool::internal
