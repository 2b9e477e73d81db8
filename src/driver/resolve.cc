#include "src/driver/resolve.h"

#include <string>

namespace commpool::internal {

namespace {

// Looks names up in a driver. cuGetProcAddress picks the variant that a CUDA version means; dlsym would pick the
// oldest.
class DriverSymbols {
 public:
  using GetProcAddress = decltype(&::cuGetProcAddress);

  explicit DriverSymbols(GetProcAddress get) : get_(get) {}

  template <typename Function>
  void Require(Function*& function, const char* name, int version) {
    function = reinterpret_cast<Function*>(FindRequired(name, version));
  }

  template <typename... Arguments>
  void FindOptional(CUresult (*&function)(Arguments...), const char* name, int version) {
    function = reinterpret_cast<CUresult (*)(Arguments...)>(Find(name, version));
    if (function == nullptr) function = [](Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; };
  }

  // The required functions that were not found, separated by commas.
  const std::string& missing() const { return missing_; }

 private:
  void* FindRequired(const char* name, int version) {
    void* function = Find(name, version);
    if (function == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
    return function;
  }

  void* Find(const char* name, int version) const {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result = get_(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &found);
    return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
  }

  GetProcAddress get_;
  std::string missing_;
};

}  // namespace

Result<CudaDriver> ResolveCuda(const SharedLibrary& library) {
  const auto get = reinterpret_cast<DriverSymbols::GetProcAddress>(library.Symbol("cuGetProcAddress_v2"));
  if (get == nullptr) {
    return Status(StatusCode::kNotSupported,
                  library.file() + " has no cuGetProcAddress_v2: commpool needs a driver of CUDA 12 or newer");
  }
  DriverSymbols symbols(get);
  CudaDriver cuda;
#define COMMPOOL_CUDA(name, version) symbols.Require(cuda.name, #name, version);
#define COMMPOOL_CUDA_OPTIONAL(name, version) symbols.FindOptional(cuda.name, #name, version);
#include "src/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  if (symbols.missing().empty()) return cuda;
  return Status(StatusCode::kNotSupported,
                library.file() + " lacks " + symbols.missing() + ": commpool needs a newer driver");
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
