// A pool of commpool's under a replayed trace, through the public C API. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_POOL_ALLOCATOR_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_POOL_ALLOCATOR_H_

#include <memory>
#include <string>

#include "commpool/pool.h"
#include "tools/cli/replay/allocator.h"
#include "tools/cli/solo_device.h"

namespace commpool::cli {

enum class ReplayMode { kExpandable, kFixed, kSymmetric };

struct PoolChoice {
  ReplayMode mode = ReplayMode::kExpandable;
  Backing backing = Backing::kVmm;
  Streams streams = Streams::kOutlive;  // as a program that releases them before they end
  uint64_t reserve_bytes = 0;           // of a symmetric pool, in advance; 0 is the peak requested
};

class PoolAllocator : public ReplayedAllocator {
 public:
  // A pool of device 0 without memory.
  static Result<std::unique_ptr<PoolAllocator>> Create(SoloDevice& device, const PoolChoice& choice);

  Status Close() { return pool_.close(); }

  Status Prepare(uint64_t peak_requested_bytes) override;
  void* Allocate(uint64_t bytes, CUstream stream) override;
  bool Free(void* block) override { return commpool_free(block) == COMMPOOL_OK; }
  bool RecordStream(void* block, CUstream stream) override {
    return commpool_record_stream(block, stream) == COMMPOOL_OK;
  }
  Status failure() const override { return Status(failed_, commpool_last_error()); }
  Status MakeRoom(uint64_t bytes) override;
  bool CalledDriver(uint64_t ns) override;
  DriverCallsByName Calls() const override;
  Costs costs() const override;

 private:
  // What the driver can be called for takes longer than this on a GPU: who reads all counters of the library after each
  // event makes the next one slower than a program's would be.
  static constexpr uint64_t kLeastDriverNs = 2'000;

  PoolAllocator(Pool pool, const PoolChoice& choice, uint64_t least_driver_ns)
      : pool_(std::move(pool)), choice_(choice), least_driver_ns_(least_driver_ns) {}

  Pool pool_;
  PoolChoice choice_;
  uint64_t least_driver_ns_;
  StatusCode failed_ = StatusCode::kInternal;
  uint64_t calls_seen_ = 0;
  uint64_t reserves_ = 0;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_POOL_ALLOCATOR_H_
