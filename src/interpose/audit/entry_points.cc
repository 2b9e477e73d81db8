// How programs find functions: cuGetProcAddress, and dlsym (dlsym.cc).
#include <cuda.h>

#include <cstring>
#include <string>

#include "src/interpose/audit/audit.h"
#include "src/interpose/audit/watched.h"
#include "src/interpose/preload/symbols.h"

namespace commpool::audit {

namespace {

using GetProcAddress = decltype(&::cuGetProcAddress);
using EarlierFunction = CUresult (*)(const char*, void**, int, cuuint64_t);

// The newest variant that a program of this CUDA version gets by a name; null where that is not watched.
Watched* FindVariant(const std::string& name, int version) {
  Watched* newest = nullptr;
  for (Watched& watched : AllWatched()) {
    const bool fits = watched.name != nullptr && name == watched.name && watched.since <= version;
    if (fits && (newest == nullptr || watched.since > newest->since)) newest = &watched;
  }
  return newest;
}

// `ask` is the driver's own function. A driver newer than the headers of this build may have a variant that they do not
// know: where it gives another function than for their version, it stays as it is.
template <typename Ask>
void* Watch(const char* name, int version, cuuint64_t flags, void* found, const Ask& ask) {
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    Watched* const itself = FindWatched(version >= 12000 ? "cuGetProcAddress_v2" : "cuGetProcAddress");
    return InPlaceOf(*itself, found);
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  Watched* watched = per_thread ? FindVariant(std::string(name) + "_ptsz", version) : nullptr;
  if (watched == nullptr) watched = FindVariant(name, version);
  if (watched == nullptr) return found;
  if (version > CUDA_VERSION && ask(CUDA_VERSION) != found) return found;
  return InPlaceOf(*watched, found);
}

}  // namespace

}  // namespace commpool::audit

using commpool::audit::FindWatched;
using commpool::audit::RealOf;  // NOLINT: C on the outside

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* name, void** function,
                                                                               int version, cuuint64_t flags,
                                                                               CUdriverProcAddressQueryResult* status) {
  const auto real = reinterpret_cast<commpool::audit::GetProcAddress>(RealOf(*FindWatched("cuGetProcAddress_v2")));
  if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  const CUresult result = real(name, function, version, flags, status);
  if (result != CUDA_SUCCESS || function == nullptr || *function == nullptr) return result;
  *function = commpool::audit::Watch(name, version, flags, *function, [&](int known) {
    void* other = nullptr;
    return real(name, &other, known, flags, nullptr) == CUDA_SUCCESS ? other : nullptr;
  });
  return result;
}

// Under its symbol `cuGetProcAddress`: cuda.h has that name for the newer one.
extern "C" __attribute__((visibility("default"))) CUresult EarlierCuGetProcAddress(
    const char* name, void** function, int version, cuuint64_t flags) __asm__("cuGetProcAddress");
CUresult EarlierCuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  const auto real = reinterpret_cast<commpool::audit::EarlierFunction>(RealOf(*FindWatched("cuGetProcAddress")));
  if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
  const CUresult result = real(name, function, version, flags);
  if (result != CUDA_SUCCESS || function == nullptr || *function == nullptr) return result;
  *function = commpool::audit::Watch(name, version, flags, *function, [&](int known) {
    void* other = nullptr;
    return real(name, &other, known, flags) == CUDA_SUCCESS ? other : nullptr;
  });
  return result;
}

void* commpool::audit::EarlierGetProcAddress() { return reinterpret_cast<void*>(&EarlierCuGetProcAddress); }
