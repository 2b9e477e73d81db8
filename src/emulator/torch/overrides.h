// What stands in place of ATen's operations on CUDA tensors.
#ifndef COMMPOOL_SRC_EMULATOR_TORCH_OVERRIDES_H_
#define COMMPOOL_SRC_EMULATOR_TORCH_OVERRIDES_H_

namespace commpool::internal::emulated_torch {

// Overrides every operation with a CUDA kernel, for the life of the process. Call it once.
void OverrideOperations();

// Overrides what a library has brought since, torchvision for one, where it has kernels for both CUDA and the CPU. Any
// thread may call it before each operation.
void OverrideLaterOperations();

}  // namespace commpool::internal::emulated_torch

#endif  // COMMPOOL_SRC_EMULATOR_TORCH_OVERRIDES_H_
