// A commpool pool under a replayed trace, through the public C API. One thread.
#pragma once

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
  Streams streams = Streams::kOutlive;  // like a program that releases its streams
  uint64_t reserve_bytes = 0;           // for a symmetric pool; 0: the peak requested
};

class PoolAllocator : public ReplayedAllocator {
 public:
  // A pool on device 0, without memory.
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
  // Calls on a GPU that call the driver take longer than this. To read all counters after each event would make the
  // next event slower than in a program.
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
