// How an emulated library that stands on the emulated driver finds it: at run time, never linked. Any thread.
#ifndef COMMPOOL_SRC_EMULATOR_DRIVER_LIBRARY_H_
#define COMMPOOL_SRC_EMULATOR_DRIVER_LIBRARY_H_

#include <string>

namespace commpool::internal {

// Ends the process with one sentence: the emulated `library` cannot run.
[[noreturn]] void RefuseToRun(const char* library, const std::string& reason);

// A handle for dlsym of the emulated libcuda.so.1 that this process uses; opens the one beside this library where none
// is loaded. Does not return where there is none, or where the process uses a real driver.
void* FindDriverLibrary(const char* library);

// A symbol of it; does not return where there is none.
void* FindDriverSymbol(const char* library, void* handle, const char* name);

}  // namespace commpool::internal

// The exported name of a driver function: cuda.h maps many to a version.
#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)

#endif  // COMMPOOL_SRC_EMULATOR_DRIVER_LIBRARY_H_
