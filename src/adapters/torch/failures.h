// Failures of ours as Python's errors: torch.OutOfMemoryError with both allocators' tables, else the package's own.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <string>

#include "commpool/commpool.h"
#include "src/adapters/torch/allocation.h"
#include "src/adapters/torch/surface.h"

namespace commpool::torch_adapter {

// Asks Python who made the calls that a symmetric pool compares between ranks: a Python function is told of each
// allocation of the pools that it watches, and says later which line made one. Null where nobody watches; that costs
// one load for each routed allocation.
inline constinit std::atomic<commpool_torch_on_call> call_watcher{nullptr};
inline constinit std::atomic<commpool_torch_explain> call_explainer{nullptr};

inline void TellWatcher(commpool_pool pool, uint64_t bytes) {
  if (const commpool_torch_on_call watcher = call_watcher.load(std::memory_order_relaxed)) watcher(pool, bytes);
}

// The pool of our call that failed on this thread just now; 0 where it is not known.
[[noreturn]] void ThrowFailure(commpool_status status, commpool_pool pool, const Request& request);

// The Python class that failures of a kind raise.
void RaiseAs(int status, struct _object* python_class);

// "commpool's pools on device 0: ...": what an error of PyTorch's own allocator lacks. Empty without pools.
std::string PoolTable(int device);

// The observers of torch._C._cuda_attach_out_of_memory_observer hear of our failures too.
void ObserveOutOfMemory(const c10::cuda::CUDACachingAllocator::OutOfMemoryObserver& observer);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_
