// What stands in place of ATen's operations on CUDA tensors.
#pragma once

namespace commpool::internal::emulated_torch {

// Overrides every operation with a CUDA kernel, for the life of the process. Call it once.
void OverrideOperations();

// Overrides what a library has brought since, torchvision for one, where it has kernels for both CUDA and the CPU. Any
// thread may call it before each operation.
void OverrideLaterOperations();

}  // namespace commpool::internal::emulated_torch
