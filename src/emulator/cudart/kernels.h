// The kernels that the program's modules register, by name. The emulator does not have their code. Any thread.
#pragma once

#include <string>

#include "src/emulator/cudart/runtime.h"

namespace commpool::internal::emulated_cudart {

struct Kernel {
  const char* name;  // mangled; the module owns it
};

void RegisterKernel(const void* entry, const char* name);
// Finds a kernel by its host function, or by a handle from cudaGetKernel; null if it is neither.
const Kernel* FindKernel(const void* entry);

// Returns the name as C++ programs write it.
std::string Demangled(const char* name);

// Answers the launch of a kernel that the emulator cannot run, and keeps the kernel's name for cudaGetErrorString.
cudaError_t RefuseKernel(const Kernel* kernel);
// Returns the text of this thread's last such answer; null before the first. The text lives as long as the process.
const char* LastRefusal();

}  // namespace commpool::internal::emulated_cudart
