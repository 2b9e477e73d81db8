// PyTorch's kernels over lists of tensors that the emulator runs on the CPU: what optimizers use by default.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_TENSOR_LISTS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_TENSOR_LISTS_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Null where the emulator does not know what the kernel does. `name` is demangled; each block has its part of a tensor.
std::unique_ptr<KernelWork> UnderstandTensorLists(const std::string& name, void** arguments, size_t blocks);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_TENSOR_LISTS_H_
