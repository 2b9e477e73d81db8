// The allocator that serves a replayed trace: a commpool pool, or PyTorch's. One thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>

#include "commpool/status.h"

namespace commpool::cli {

struct DriverCalls {
  uint64_t count = 0;
  double microseconds = 0;
};
using DriverCallsByName = std::map<std::string, DriverCalls>;

// The calls between two readings.
DriverCallsByName Difference(const DriverCallsByName& later, const DriverCallsByName& earlier);
DriverCalls Sum(const DriverCallsByName& calls);

class ReplayedAllocator {
 public:
  virtual ~ReplayedAllocator() = default;

  // Called before the first event, outside the timing, for an allocator that cannot grow later.
  virtual Status Prepare(uint64_t /*peak_requested_bytes*/) { return Status(); }

  // The timed calls. Null where it fails; failure() says why.
  virtual void* Allocate(uint64_t bytes, CUstream stream) = 0;
  virtual bool Free(void* block) = 0;
  virtual bool RecordStream(void* block, CUstream stream) = 0;
  virtual Status failure() const = 0;

  // Outside the timing: makes room after a failed Allocate, which is then repeated. An error where there is no room.
  virtual Status MakeRoom(uint64_t /*bytes*/) { return failure(); }

  // Whether the driver was called since the last question; `ns` is the time of the allocator's last call.
  virtual bool CalledDriver(uint64_t ns) = 0;
  virtual DriverCallsByName Calls() const = 0;

  struct Costs {
    uint64_t waits = 0;
    uint64_t moved_bytes = 0;
    uint64_t reserves = 0;  // how often MakeRoom grew a symmetric pool
  };
  virtual Costs costs() const { return {}; }
};

}  // namespace commpool::cli
