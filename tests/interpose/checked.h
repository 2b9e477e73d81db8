// For programs under test that link the driver and NCCL: what they check, and a context to begin with.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

constexpr size_t kMiB = size_t{1} << 20;

// A call that fails ends the program, and says which it was.
inline void Check(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed: %d\n", call, result);
  std::exit(9);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

// The primary context of a device becomes current.
inline CUcontext Begin(int device) {
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  return context;
}
