#include "src/driver/handle.h"

#include "src/base/log.h"

namespace commpool::internal {

void LogFailedRelease(const Driver& driver, CUresult result, const CallSite& site) {
  if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return;
  Status status = CheckCuda(driver, result, site);
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

}  // namespace commpool::internal
