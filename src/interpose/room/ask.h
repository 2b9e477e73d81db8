// What `commpool run` does where a call of anybody has run out of a device's memory: the process's pools and PyTorch's
// cache give back what is idle, and the call is made once more. Any thread.
//
// Nothing waits inside of a failed call: another rank may wait for this one. So only that goes of which queries tell
// that nobody uses it. Nothing is asked in a capture, nor on a thread that is within commpool.
#pragma once

#include <cuda.h>

#include <functional>
#include <string>

namespace commpool::run {

// Whether `commpool run` started this process.
bool IsAsked();

// For a call that returned CUDA_ERROR_OUT_OF_MEMORY. Returns what `make` returns then, or the same error.
CUresult MakeAgain(const char* call, int device, const std::function<CUresult()>& make);

// The lines of a table: who ran out of memory, and what that gave. Empty where nobody did.
std::string TableOfAsked();

}  // namespace commpool::run
