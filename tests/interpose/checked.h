// For programs under test that link the driver and NCCL: what they check, and a context to begin with.
#pragma once

#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr size_t kMiB = size_t{1} << 20;

// A call that fails ends the program, and says which it was.
inline void Check(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed: %d\n", call, result);
  std::exit(9);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

// Where the first word is "in-a-fork" the rest happens in a child, whose parent uses no CUDA.
inline void ForkWhereAsked(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "in-a-fork") != 0) return;
  const pid_t child = fork();
  if (child == 0) return;
  int status = 0;
  waitpid(child, &status, 0);
  std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

// The primary context of a device becomes current.
inline CUcontext Begin(int device) {
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  return context;
}
