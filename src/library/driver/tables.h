// The CUDA driver and NCCL as tables of functions.
//
// Members have the API's names, types and documentation. The loader fills a table once; it never changes, so any thread
// may call through it.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <string>

#include "commpool/status.h"
#include "src/library/driver/newer_nccl.h"
#include "src/library/driver/shared_library.h"

namespace commpool::internal {

// The CUDA driver. Here the emulator takes the real driver's place. There is no cuMulticastCreate: only NCCL needs it.
struct CudaDriver {
#define COMMPOOL_CUDA(name, version) decltype(&::name) name = nullptr;
#include "src/library/driver/cuda_functions.inc"
#undef COMMPOOL_CUDA
};

// kNotSupported names every required function that the driver lacks. A missing optional function answers
// CUDA_ERROR_NOT_SUPPORTED.
Result<CudaDriver> ResolveCuda(const SharedLibrary& library);

// NCCL. A function that the running library lacks is null.
//
// `version` decides what the library can do. It is the version that runs, never that of the header we were built with.
struct NcclLibrary {
#define COMMPOOL_NCCL(name, version) decltype(&::name) name = nullptr;
#include "src/library/driver/nccl_functions.inc"
#undef COMMPOOL_NCCL

  int version = 0;          // from ncclGetVersion: 22809 is 2.28.9; 0 where there is no NCCL
  std::string why_missing;  // the reason where version is 0
  std::string path;         // the file that was opened

  bool available() const { return version != 0; }
  // ncclCommRegister and ncclMemAlloc, since 2.19.
  bool has_local_registration() const { return ncclCommRegister != nullptr && ncclMemAlloc != nullptr; }
  // ncclCommWindowRegister, since 2.27.
  bool has_windows() const { return ncclCommWindowRegister != nullptr && version >= 22700; }
  // Windows over host memory, since 2.30.3 (and for device-side use only).
  bool has_host_windows() const { return has_windows() && version >= 23003; }
  // ncclCommSuspend, ncclCommResume and ncclCommMemStats, since 2.29.7.
  bool has_sleep() const {
    return ncclCommSuspend != nullptr && ncclCommResume != nullptr && ncclCommMemStats != nullptr;
  }
  // From 2.29.7 on an abort releases windows. Before, it keeps their memory for good.
  bool ends_windows_in_abort() const { return version >= 22907; }

  // The reason, for refusals; empty where the library has local registration.
  std::string WhyNoLocalRegistration() const;
  std::string WhyNoWindows() const;
  std::string WhyNoSleep() const;
};

// A missing function is null. A library that does not tell its version counts as none.
NcclLibrary ResolveNccl(const SharedLibrary& library);

// Such as "2.28.9".
std::string FormatNcclVersion(int version);

}  // namespace commpool::internal
