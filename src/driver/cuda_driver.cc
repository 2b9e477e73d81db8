#include "src/driver/cuda_driver.h"

#include <string>

namespace commpool::internal {

namespace {

template <typename... Arguments>
auto OrUnsupported(CUresult (*function)(Arguments...)) {
  return function != nullptr ? function : [](Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; };
}

}  // namespace

Result<CudaDriver> ResolveCuda(const SharedLibrary& library) {
  const auto get = reinterpret_cast<decltype(&::cuGetProcAddress)>(library.Symbol("cuGetProcAddress_v2"));
  if (get == nullptr) {
    return Status(StatusCode::kNotSupported,
                  library.file() + " has no cuGetProcAddress_v2: commpool needs a driver of CUDA 12 or newer");
  }
  std::string missing;
  // cuGetProcAddress picks the variant of a CUDA version; dlsym would pick the oldest one.
  const auto find = [&](const char* name, int version, bool required) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result = get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    if (result != CUDA_SUCCESS || found != CU_GET_PROC_ADDRESS_SUCCESS) function = nullptr;
    if (function == nullptr && required) missing += (missing.empty() ? "" : ", ") + std::string(name);
    return function;
  };
  CudaDriver cuda;
#define COMMPOOL_CUDA(name, version) cuda.name = reinterpret_cast<decltype(cuda.name)>(find(#name, version, true));
#define COMMPOOL_CUDA_OPTIONAL(name, version) \
  cuda.name = OrUnsupported(reinterpret_cast<decltype(cuda.name)>(find(#name, version, false)));
#include "src/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  if (missing.empty()) return cuda;
  return Status(StatusCode::kNotSupported, library.file() + " lacks " + missing + ": commpool needs a newer driver");
}

}  // namespace commpool::internal
