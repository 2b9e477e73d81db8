// What a forwarded allocation reads of the router. It lies in the router itself, in one line of the processor's caches
// with the table of its functions: torch.empty touches more memory than the nearest cache holds, so that each further
// line costs more than the few instructions that read it.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>

#include "commpool/commpool.h"

namespace commpool::torch_adapter {

using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

struct HotLine {
  TorchAllocator* native = nullptr;
  decltype(&::commpool_allocate_in_scope) allocate_in_scope = nullptr;
  // How much may catch an allocation now: open scopes, routings to our pools, pools that are the whole allocator.
  std::atomic<int64_t> catchers{0};

  // A load and a call that is a load.
  [[gnu::always_inline]] bool AnythingCatches() const {
    if (C10_UNLIKELY(catchers.load(std::memory_order_relaxed) != 0)) return true;
    // Without a place for a block it is refused where a scope is open, and nothing else than NOT_CAUGHT where none is.
    return C10_UNLIKELY(allocate_in_scope(COMMPOOL_CURRENT_DEVICE, 1, nullptr, nullptr) != COMMPOOL_NOT_CAUGHT);
  }
};

// The router's.
HotLine& Hot();

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_HOT_LINE_H_
