// What NCCL keeps for good: windows whose communicator ended before them, or that it would not end. NCCL before 2.29.7
// holds their memory until the process ends. Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_HELD_WINDOWS_H_
#define COMMPOOL_SRC_REGISTRATION_HELD_WINDOWS_H_

#include <cstdint>

#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/driver/loader.h"
#include "src/registration/registered_range.h"

namespace commpool::internal {

class HeldWindows {
 public:
  explicit HeldWindows(const Driver& driver) : driver_(driver) {}

  // NCCL was not told that this one ended. Returns its bytes; 0 where NCCL lets go with the communicator.
  uint64_t Note(const RegisteredRange& range);
  // Of all, a segment's once for all communicators.
  uint64_t bytes() const;

 private:
  const Driver& driver_;
  mutable Mutex mutex_{LockRank::kLeaf};
  ReservedMap<CUdeviceptr, uint64_t> bytes_ COMMPOOL_GUARDED_BY(mutex_);  // by their segments' addresses
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_HELD_WINDOWS_H_
