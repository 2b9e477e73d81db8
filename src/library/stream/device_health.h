// Remembers whether a device's context still works. After a sticky error every call on the context fails. Then pools
// quarantine their blocks and answer with the first error, and destructors call nothing (rule 9). Each device has one
// (DeviceState). Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_STREAM_DEVICE_HEALTH_H_
#define COMMPOOL_SRC_LIBRARY_STREAM_DEVICE_HEALTH_H_

#include <cuda.h>

#include <atomic>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

class DeviceHealth {
 public:
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  const std::atomic<bool>& broken_flag() const { return broken_; }

  // The first sticky error, or OK.
  Status first_error() const {
    if (!broken()) return Status();
    MutexLock lock(mutex_);
    return first_error_;
  }

  // CheckCuda, and remembers the first sticky error.
  Status Check(const Driver& driver, CUresult result, const CallSite& site) {
    Status status = CheckCuda(driver, result, site);
    if (!status.ok() && IsSticky(result)) {
      MutexLock lock(mutex_);
      if (first_error_.ok()) first_error_ = status;
      broken_.store(true, std::memory_order_release);
    }
    return status;
  }

 private:
  std::atomic<bool> broken_{false};
  mutable Mutex mutex_{LockRank::kLeaf};
  Status first_error_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_STREAM_DEVICE_HEALTH_H_
