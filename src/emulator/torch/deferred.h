// An operation of ATen that was submitted: its CPU kernel as a launch of the emulator, repeated by graphs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "src/emulator/torch/random_state.h"

namespace commpool::internal::emulated_torch {

// What runs in place of an operation on CPU tensors: takes the arguments from the stack and leaves the results, as the
// operation does. The generator is defined for operations that draw.
using CpuKernel = void (*)(const c10::OperatorHandle& operation, c10::Stack* stack, const at::Generator& generator);

// Enqueues the operation on its device's current stream. `results` are the tensors that it has made or written; it
// throws if the emulator refuses. Any thread.
void Enqueue(const c10::OperatorHandle& operation, CpuKernel kernel, const c10::Stack& arguments,
             const c10::Stack& results, const std::optional<RandomState>& random);

// Calls `kernel` or, without one, the operation itself. Where the CPU has no kernel for short floats, it computes in
// float.
void RunOnCpu(const c10::OperatorHandle& operation, CpuKernel kernel, c10::Stack* stack,
              const at::Generator& generator);

}  // namespace commpool::internal::emulated_torch
