// How an emulated library finds the emulated driver that it needs: at run time, never linked. Any thread.
#pragma once

#include <string>

namespace commpool::internal {

// Ends the process with one sentence that says why the emulated `library` cannot run.
[[noreturn]] void RefuseToRun(const char* library, const std::string& reason);

// Returns a handle for dlsym of the emulated libcuda.so.1 of this process. If none is loaded, it opens the one beside
// this library. It does not return if there is none, or if the process uses a real driver.
void* FindDriverLibrary(const char* library);

// Finds a symbol in that library; does not return if there is none.
void* FindDriverSymbol(const char* library, void* handle, const char* name);

}  // namespace commpool::internal

// The exported name of a driver function. cuda.h maps many names to a version.
#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)
