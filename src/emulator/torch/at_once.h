// An operation whose CUDA code wants to see a result, or calls a library that the emulator does not mute: it waits for
// its stream and runs on the CPU before its call returns.
#ifndef COMMPOOL_SRC_EMULATOR_TORCH_AT_ONCE_H_
#define COMMPOOL_SRC_EMULATOR_TORCH_AT_ONCE_H_

#include "src/emulator/torch/deferred.h"

namespace commpool::internal::emulated_torch {

// Leaves the results on the stack. Throws in a capture, where a GPU could not wait either.
void RunAtOnce(const c10::OperatorHandle& operation, CpuKernel kernel, const c10::Stack& arguments,
               const std::optional<RandomState>& random, c10::Device device, c10::Stack* stack);

}  // namespace commpool::internal::emulated_torch

#endif  // COMMPOOL_SRC_EMULATOR_TORCH_AT_ONCE_H_
