// Another project's allocator under a replayed trace: PyTorch's, RMM's, or the driver's. One thread.
#pragma once

#include <memory>
#include <string>

#include "commpool/status.h"
#include "tools/cli/replay/allocator.h"
#include "tools/cli/replay/peers/peers.h"
#include "tools/cli/replay/replay_run.h"
#include "tools/cli/solo_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

class PeerAllocator : public ReplayedAllocator {
 public:
  // `options.as` chooses it; `device` must outlive it. `arena_bytes`: the size of RMM's arena, which takes all at once.
  static Result<std::unique_ptr<PeerAllocator>> Open(SoloDevice& device, const PeerOptions& options,
                                                     uint64_t arena_bytes);

  // The timed calls, with the driver's part. On the emulator that counts all calls of allocators; on a GPU RMM's
  // cudaMalloc and cudaFree, and every call of the driver's own allocator. PyTorch's calls cannot be seen on a GPU.
  void* Allocate(uint64_t bytes, CUstream stream) final;
  bool Free(void* block) final;
  bool RecordStream(void* block, CUstream stream) final;
  Status failure() const final { return Status(StatusCode::kOutOfMemory, "the allocator is out of memory"); }
  bool CalledDriver(uint64_t ns) final;
  DriverCallsByName Calls() const final;

 protected:
  explicit PeerAllocator(SoloDevice& device);

  virtual void* Serve(uint64_t bytes, CUstream stream) = 0;
  virtual void TakeBack(void* block) = 0;
  // Another stream uses the block, until the free.
  virtual Status AlsoUse(void* block, CUstream stream) = 0;
  // The driver calls so far; nothing where they cannot be seen.
  virtual DriverCalls DriverSoFar() const { return {}; }
  virtual bool sees_driver() const { return true; }

  SoloDevice& device() const { return device_; }

 private:
  template <typename Call>
  void Watch(Call&& call);
  DriverCalls EmulatedSoFar() const;

  SoloDevice& device_;
  uint64_t (*count_)(const char*) = nullptr;  // the emulator's
  double (*now_)() = nullptr;
  DriverCalls seen_;  // inside the timed calls
  uint64_t told_ = 0;
};

// An allocator whose driver calls cannot be seen has made some if a call took so long.
inline constexpr uint64_t kDriverNs = 20'000;

// Replays a trace in `options.as`. RMM's arena takes its memory first: the smallest of several sizes above the peak
// requested with which the trace completes.
Result<ReplayMeasures> ReplayInPeer(SoloDevice& device, const Trace& trace, const PeerOptions& options);

}  // namespace commpool::cli
