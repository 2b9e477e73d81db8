// Turns our failures into Python's errors: torch.OutOfMemoryError with the tables of both allocators, else the
// package's own.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <string>

#include "commpool/commpool.h"
#include "src/torch/allocation.h"
#include "src/torch/surface.h"

namespace commpool::torch_adapter {

// Asks Python who made the calls that a symmetric pool compares between ranks. It tells a Python function of each
// allocation of the pools that the function watches; later that function says which line made one. Null if nobody
// watches. It costs one load for each routed allocation.
inline constinit std::atomic<commpool_torch_on_call> call_watcher{nullptr};
inline constinit std::atomic<commpool_torch_explain> call_explainer{nullptr};

inline void TellWatcher(commpool_pool pool, uint64_t bytes) {
  if (const commpool_torch_on_call watcher = call_watcher.load(std::memory_order_relaxed)) watcher(pool, bytes);
}

// Throws the error of our call that failed on this thread just now. `pool` is its pool; 0 if that is unknown.
[[noreturn]] void ThrowFailure(commpool_status status, commpool_pool pool, const Request& request);

// The same for pinned memory: a table of a device would tell nothing.
[[noreturn]] void ThrowPinnedFailure(commpool_status status);

// Sets the Python class that failures of a kind raise.
void RaiseAs(int status, struct _object* python_class);

// Returns "commpool's pools on device 0: ...", which errors of PyTorch's own allocator lack. Empty without pools.
std::string PoolTable(int device);

// The observers of torch._C._cuda_attach_out_of_memory_observer get our failures too.
void ObserveOutOfMemory(const c10::cuda::CUDACachingAllocator::OutOfMemoryObserver& observer);

}  // namespace commpool::torch_adapter
