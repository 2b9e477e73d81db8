// The kernels that the program's modules register, by name. The emulator has no code of theirs. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDART_KERNELS_H_
#define COMMPOOL_SRC_EMULATOR_CUDART_KERNELS_H_

#include <string>

#include "src/emulator/cudart/runtime.h"

namespace commpool::internal::emulated_cudart {

struct Kernel {
  const char* name;  // mangled; the module's
};

void RegisterKernel(const void* entry, const char* name);
// Of a host function, or of a handle that cudaGetKernel gave; null for neither.
const Kernel* FindKernel(const void* entry);

// A name as C++ programs write it.
std::string Demangled(const char* name);

// The answer to a launch of what the emulator cannot run; keeps the kernel's name for cudaGetErrorString.
cudaError_t RefuseKernel(const Kernel* kernel);
// The text of this thread's last such answer; null before the first. Lives as long as the process.
const char* LastRefusal();

}  // namespace commpool::internal::emulated_cudart

#endif  // COMMPOOL_SRC_EMULATOR_CUDART_KERNELS_H_
