// Modules of kernels: the emulator runs no code that is made for a GPU.
#include <cstdio>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

// What a compiler wrote for a program: Triton's kernels, by torch.compile for one.
CUresult cuModuleLoad(CUmodule*, const char* file) {
  return Call("cuModuleLoad", Needs::kCurrentContext, [&](Machine&, auto&) {
    std::fprintf(stderr,
                 "commpool emulator: there is no GPU to run the kernels of %s: compile with backend=\"eager\"\n",
                 file == nullptr ? "no file" : file);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  });
}

CUresult cuModuleLoadData(CUmodule*, const void*) {
  return Call("cuModuleLoadData", Needs::kCurrentContext, [](Machine&, auto&) { return CUDA_ERROR_NO_BINARY_FOR_GPU; });
}

CUresult cuModuleLoadDataEx(CUmodule*, const void*, unsigned, CUjit_option*, void**) {
  return Call("cuModuleLoadDataEx", Needs::kCurrentContext,
              [](Machine&, auto&) { return CUDA_ERROR_NO_BINARY_FOR_GPU; });
}
