// PyTorch's allocator under a replayed trace. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_TORCH_ALLOCATOR_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_TORCH_ALLOCATOR_H_

#include "tools/cli/replay/allocator.h"
#include "tools/cli/torch_library.h"

namespace commpool::cli {

// PyTorch's driver calls cannot be counted from outside: a call that takes longer than this has made some.
inline constexpr uint64_t kTorchDriverNs = 20'000;

class TorchAllocator : public ReplayedAllocator {
 public:
  explicit TorchAllocator(const TorchLibrary& torch) : torch_(torch) {}
  ~TorchAllocator() override { torch_.empty_cache(); }

  void* Allocate(uint64_t bytes, CUstream stream) override { return torch_.allocate(bytes, stream); }
  bool Free(void* block) override { return torch_.free(block), true; }
  bool RecordStream(void* block, CUstream stream) override { return torch_.record_stream(block, stream), true; }
  Status failure() const override { return Status(StatusCode::kOutOfMemory, "PyTorch's allocator is out of memory"); }
  bool CalledDriver(uint64_t ns) override { return ns > kTorchDriverNs; }
  DriverCallsByName Calls() const override { return {}; }

 private:
  TorchLibrary torch_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_TORCH_ALLOCATOR_H_
