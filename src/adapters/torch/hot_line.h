// What a forwarded allocation reads of the router. It lies in the router itself, in one line of the processor's caches
// with the table of its functions: torch.empty touches more memory than the nearest cache holds, so that each further
// line costs more than the few instructions that read it.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>

namespace commpool::torch_adapter {

using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

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

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_
