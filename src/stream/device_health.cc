#include "src/stream/device_health.h"

namespace commpool::internal {

Status DeviceHealth::first_error() const {
  if (!broken()) return Status();
  MutexLock lock(mutex_);
  return first_error_;
}

Status DeviceHealth::Check(const Driver& driver, CUresult result, const CallSite& site) {
  Status status = CheckCuda(driver, result, site);
  if (!status.ok() && IsSticky(result)) {
    MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
    broken_.store(true, std::memory_order_release);
  }
  return status;
}

}  // namespace commpool::internal
