// An operation whose CUDA code wants to see a result, or calls a library that the emulator does not mute: it waits for
// its stream and runs on the CPU before its call returns.
#pragma once

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

// Leaves the results on the stack. Throws in a capture, where a GPU could not wait either.
void RunAtOnce(const c10::OperatorHandle& operation, CpuKernel kernel, const c10::Stack& arguments,
               const std::optional<RandomState>& random, c10::Device device, c10::Stack* stack);

}  // namespace commpool::internal::emulated_torch
