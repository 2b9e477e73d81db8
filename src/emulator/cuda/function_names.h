// Finds names of functions in the full symbol tables of their files. dladdr knows exported names only, and a program
// exports none. It is slow, so only reports use it. Any thread may call it.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace commpool::internal::emulator {

// Returns the mangled name; empty if no table has one. `module` is dladdr's answer for the address.
std::string FunctionAt(uintptr_t address, const Dl_info& module);

}  // namespace commpool::internal::emulator
