// PyTorch's elementwise kernels that the emulator runs on the CPU: filling, copying, adding and multiplying tensors.
//
// A kernel is known by its name, which says the functor and the element type; its arguments follow from that. What is
// not understood in every part is not run.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Null where the emulator does not know what the kernel does. `name` is demangled.
std::unique_ptr<KernelWork> UnderstandElementwise(const std::string& name, void** arguments);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_ELEMENTWISE_H_
