// Modules of kernels: the emulator runs no code that is made for a GPU.
#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

CUresult cuModuleLoadData(CUmodule*, const void*) {
  return Call("cuModuleLoadData", Needs::kCurrentContext, [](Machine&, auto&) { return CUDA_ERROR_NO_BINARY_FOR_GPU; });
}

CUresult cuModuleLoadDataEx(CUmodule*, const void*, unsigned, CUjit_option*, void**) {
  return Call("cuModuleLoadDataEx", Needs::kCurrentContext,
              [](Machine&, auto&) { return CUDA_ERROR_NO_BINARY_FOR_GPU; });
}
