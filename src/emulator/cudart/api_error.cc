// Errors and versions.
#include "src/emulator/cudart/kernels.h"
#include "src/emulator/cudart/runtime.h"

using namespace commpool::internal::emulated_cudart;  // NOLINT: this file is C on the outside

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define COMMPOOL_ERROR(name, text) {name, #name, text},
#include "src/emulator/cudart/errors.inc"
#undef COMMPOOL_ERROR
};

const ErrorText* Find(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const known = Find(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  // A program that meets this error needs the name of the kernel that has no image.
  const char* const kernel = error == cudaErrorNoKernelImageForDevice ? LastRefusal() : nullptr;
  if (kernel != nullptr) return kernel;
  const ErrorText* const known = Find(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

cudaError_t cudaPeekAtLastError() { return LastError(); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = LastError();
  ForgetLastError();
  return error;
}

cudaError_t cudaDriverGetVersion(int* version) { return Keep(Driver().cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return Keep(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  // A program that was built for a newer driver gets the newest function of this one.
  int newest = 0;
  Driver().cuDriverGetVersion(&newest);
  const int asked = static_cast<int>(version) > newest ? newest : static_cast<int>(version);
  const CUresult result = Driver().cuGetProcAddress(symbol, function, asked, flags, &found);
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return Keep(result);
}

// There is no profiler. Another header declares these functions.
#pragma GCC visibility push(default)
extern "C" cudaError_t cudaProfilerStart() { return cudaSuccess; }
extern "C" cudaError_t cudaProfilerStop() { return cudaSuccess; }
#pragma GCC visibility pop
