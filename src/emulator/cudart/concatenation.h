// PyTorch's concatenation of flat tensors (torch.cat with one dimension), which the emulator runs on the CPU.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Returns null if the emulator does not know the kernel. `name` is demangled. A launch has one row of blocks for each
// tensor.
std::unique_ptr<KernelWork> UnderstandConcatenation(const std::string& name, void** arguments, size_t tensors);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_
