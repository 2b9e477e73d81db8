#include "src/library/driver/tables.h"

namespace commpool::internal {

namespace {

template <typename... Arguments>
auto OrUnsupported(CUresult (*function)(Arguments...)) {
  return function != nullptr ? function : [](Arguments...) { return CUDA_ERROR_NOT_SUPPORTED; };
}

std::string WhyMissing(const NcclLibrary& library, const std::string& what, const std::string& first_version) {
  if (!library.available()) return what + " need NCCL, and there is none: " + library.why_missing;
  return what + " need NCCL " + first_version + "; " + library.path + " is " + FormatNcclVersion(library.version);
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
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
  if (missing.empty()) return cuda;
  return Status(StatusCode::kNotSupported, library.file() + " lacks " + missing + ": commpool needs a newer driver");
}

std::string NcclLibrary::WhyNoLocalRegistration() const {
  return has_local_registration() ? "" : WhyMissing(*this, "local registrations", "2.19");
}

std::string NcclLibrary::WhyNoWindows() const { return has_windows() ? "" : WhyMissing(*this, "windows", "2.27"); }

std::string NcclLibrary::WhyNoSleep() const {
  return has_sleep() ? "" : WhyMissing(*this, "communicators that sleep", "2.29.7");
}

NcclLibrary ResolveNccl(const SharedLibrary& library) {
  NcclLibrary nccl;
#define COMMPOOL_NCCL(name, version) nccl.name = reinterpret_cast<decltype(nccl.name)>(library.Symbol(#name));
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  nccl.path = library.file();
  if (nccl.ncclGetVersion == nullptr || nccl.ncclGetVersion(&nccl.version) != ncclSuccess) {
    nccl = NcclLibrary();
    nccl.why_missing = library.file() + " does not answer ncclGetVersion";
    return nccl;
  }
  // The emulator has every symbol, whichever release it imitates.
#define COMMPOOL_NCCL(name, first) \
  if (nccl.version < first) nccl.name = nullptr;
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL
  return nccl;
}

std::string FormatNcclVersion(int version) {
  // From 2.9 on the code is major * 10000 + minor * 100 + patch; before, the major version counted 1000.
  const int major_unit = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace commpool::internal
