// Finds functions of other libraries by name, past the ones of the same name that this library has. Any thread.
#pragma once

namespace commpool::preload {

// The system's dlsym: this library has one of its own.
void* DlsymOfSystem();
void* SystemDlsym(void* handle, const char* name);

// The definition of a symbol in a library that the process has loaded, however it was loaded; null where there is none.
void* FindDefinition(const char* name);

// Whether an address lies in this library.
bool IsOurs(const void* address);

}  // namespace commpool::preload
