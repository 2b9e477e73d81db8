// Stands in front of the libraries that PyTorch's CUDA code calls. In a muted call cuBLAS does nothing, and the others
// fail, so that the operation runs at once (mute.h). Elsewhere all of them fail as NVIDIA's do without a GPU.
#include <dlfcn.h>

#include <cstddef>
#include <cstring>

#include "src/emulator/cudart/mute.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

constexpr int kNotInitialized = 1;  // of cuBLAS, cuBLASLt and cuSOLVER; cuFFT's is an invalid plan
constexpr int kNvrtcInternalError = 11;
constexpr size_t kLtVersion = 130200;

int Compute() {
  if (!IsMuted()) return kNotInitialized;
  NoteMuted();
  return 0;
}

int Refuse() {
  if (IsMuted()) NoteMustRunAtOnce();
  return kNotInitialized;
}

// Nobody looks into a handle.
int MakeHandle(void** handle) {
  static char one;
  *handle = &one;
  return 0;
}

// cublasLtMatmulHeuristicResult_t
struct Heuristic {
  unsigned long long algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

#define COMMPOOL_COMPUTES(name) \
  int name() { return Compute(); }
#define COMMPOOL_SETS(name) \
  int name() { return 0; }
#include "src/emulator/cudart/muted_blas.inc"
#undef COMMPOOL_COMPUTES
#undef COMMPOOL_SETS

#define COMMPOOL_REFUSES(name) \
  int name() { return Refuse(); }
#include "src/emulator/cudart/muted_solvers.inc"
#undef COMMPOOL_REFUSES

// Each is another: PyTorch keeps a workspace for each handle, and backward's threads have handles of their own.
int cublasCreate_v2(void** handle) {
  *handle = new char;
  return 0;
}
int cublasDestroy_v2(void* handle) {
  delete static_cast<char*>(handle);
  return 0;
}
int cublasLtCreate(void** handle) { return MakeHandle(handle); }
int cublasLtMatmulDescCreate(void** description) { return MakeHandle(description); }
int cublasLtMatmulPreferenceCreate(void** preference) { return MakeHandle(preference); }
int cublasLtMatrixLayoutCreate(void** layout) { return MakeHandle(layout); }
size_t cublasLtGetVersion() { return kLtVersion; }

int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }

int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, Heuristic* found, int* count) {
  std::memset(found, 0, sizeof(*found));
  *count = 1;
  return 0;
}

// Without a GPU the compiler would work, and its modules would not load.
int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers, const char* const* contents,
                       const char* const* names) {
  if (IsMuted()) {
    NoteMustRunAtOnce();
    return kNvrtcInternalError;
  }
  static const auto real = reinterpret_cast<decltype(&nvrtcCreateProgram)>(dlsym(RTLD_NEXT, "nvrtcCreateProgram"));
  return real == nullptr ? kNvrtcInternalError : real(program, source, name, headers, contents, names);
}

#pragma GCC visibility pop

}  // extern "C"
