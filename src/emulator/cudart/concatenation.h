// PyTorch's concatenation of flat tensors, which the emulator runs on the CPU: torch.cat of one dimension.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Null where the emulator does not know what the kernel does. `name` is demangled; a launch has a row of blocks for
// each tensor.
std::unique_ptr<KernelWork> UnderstandConcatenation(const std::string& name, void** arguments, size_t tensors);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_CONCATENATION_H_
