// Names of functions from the full symbol tables of the files that they were loaded from. dladdr knows exported names
// only, and a program exports none. Slow: for reports. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_FUNCTION_NAMES_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_FUNCTION_NAMES_H_

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace commpool::internal::emulator {

// As a linker knows it, not demangled; empty for what no table names. `module` is dladdr's answer for the address.
std::string FunctionAt(uintptr_t address, const Dl_info& module);

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_FUNCTION_NAMES_H_
