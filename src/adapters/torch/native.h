// The allocator that PyTorch had before us, as a rule its native one. The router forwards to it.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>

namespace commpool::torch_adapter {

using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

// The part of the router that a forwarded allocation reads. It shares one cache line with the table of the router's
// functions: torch.empty touches more memory than the nearest cache holds, so another line would cost more than the few
// instructions that read it.
struct HotLine {
  TorchAllocator* native = nullptr;
  const std::atomic<uint64_t>* open_scopes = nullptr;  // of the C ABI
  // How much may catch an allocation now: open scopes, routings to our pools, pools that are the whole allocator.
  std::atomic<int64_t> catchers{0};

  // Two loads and a branch.
  [[gnu::always_inline]] bool AnythingCatches() const {
    const auto scopes = static_cast<int64_t>(open_scopes->load(std::memory_order_relaxed));
    return C10_UNLIKELY((catchers.load(std::memory_order_relaxed) | scopes) != 0);
  }
};

// The router's.
HotLine& Hot();

// Null before the router is installed.
inline TorchAllocator* Native() { return Hot().native; }

struct DeviceMemory {
  uint64_t free = 0;
  uint64_t total = 0;
};
// As the driver has it; zeros where it does not answer.
DeviceMemory MemoryOf(int device);

// Tells the library once of PyTorch's cache, which it asks when a pool of ours runs out.
void OfferNativeCache();

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_NATIVE_H_
