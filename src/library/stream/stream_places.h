// StreamPlaces: the devices whose streams, events and memory are in use, each by its primary context. The driver has
// one primary context for a device, and streams of any other context are refused (rule 11).
//
// A place is made at its first use and stays as long as this object, so its context stays retained. Any thread. Its own
// lock guards bookkeeping; no driver call is made under it.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <optional>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"

namespace commpool::internal {

// Remembers whether a device's context still works. After a sticky error every call on the context fails. Then pools
// keep their blocks and answer with the first error, and destructors call nothing (rule 9). Each device has one
// (Place). Any thread.
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

struct Place {
  int device() const { return context.device(); }
  // Whether the stream captures; also true for the legacy stream while a blocking stream of its device does, for then
  // it may be asked nothing. The place's context has to be current.
  Result<bool> IsCapturing(const Driver& driver, CUstream stream);

  PrimaryContext context;
  DeviceHealth health;
};

class StreamPlaces {
 public:
  explicit StreamPlaces(const Driver& driver) : driver_(driver) {}
  // Calls the driver for no context that is lost (rule 9).
  ~StreamPlaces();
  StreamPlaces(const StreamPlaces&) = delete;
  StreamPlaces& operator=(const StreamPlaces&) = delete;

  // Makes the place at the device's first use. kInvalidArgument for a device beyond 255.
  Result<Place*> Get(int device);
  // REQUIRES: Get was called for the device. It was for each device that a key of a stream names.
  Place& At(int device) const;

  // The device of the context, whose place is made at its first use. kNotSupported where it is no primary context.
  Result<int> OfContext(CUcontext context);
  // The device of the calling thread's current context; nothing where none is current.
  Result<std::optional<int>> Current();
  // The device of a stream of its own that the current call passes. A thread without a context stays without.
  Result<int> OfStream(CUstream stream);

 private:
  static constexpr size_t kMostPlaces = 256;

  const Driver& driver_;
  Mutex mutex_{LockRank::kLeaf};  // held while a place is entered
  // Owned; null where the place was not made yet.
  std::array<std::atomic<Place*>, kMostPlaces> places_ = {};
};

}  // namespace commpool::internal
