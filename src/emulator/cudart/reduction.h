// PyTorch's reductions that the emulator runs on the CPU: sums and means.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_REDUCTION_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_REDUCTION_H_

#include <memory>
#include <string>

#include "src/emulator/cudart/kernel_work.h"

namespace commpool::internal::emulated_cudart {

// Returns null if the emulator does not know the kernel. `name` is demangled.
std::unique_ptr<KernelWork> UnderstandReduction(const std::string& name, void** arguments);

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_REDUCTION_H_
