// PyTorch's elementwise kernels that the emulator runs on the CPU: they fill, copy, add and multiply tensors.
//
// A kernel's name says its functor and its element type, and these say what the arguments are. The emulator runs a
// kernel only if it understands every part.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Returns null if the emulator does not know the kernel. `name` is demangled.
std::unique_ptr<KernelWork> UnderstandElementwise(const std::string& name, void** arguments);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
