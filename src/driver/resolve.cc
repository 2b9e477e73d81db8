#include "src/driver/resolve.h"

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
  // cuGetProcAddress picks the variant that a CUDA version means; dlsym would pick the oldest.
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

NcclLibrary ResolveNccl(const SharedLibrary& library) {
  NcclLibrary nccl;
#define COMMPOOL_NCCL(name, version) nccl.name = reinterpret_cast<decltype(nccl.name)>(library.Symbol(#name));
#include "src/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  nccl.path = library.file();
  if (nccl.ncclGetVersion == nullptr || nccl.ncclGetVersion(&nccl.version) != ncclSuccess) {
    nccl = NcclLibrary();
    nccl.why_missing = library.file() + " does not answer ncclGetVersion";
    return nccl;
  }
  // The emulator has every symbol, whatever release it poses as.
#define COMMPOOL_NCCL(name, first) \
  if (nccl.version < first) nccl.name = nullptr;
#include "src/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  return nccl;
}

}  // namespace commpool::internal
