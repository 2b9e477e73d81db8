// Failures of ours as PyTorch's errors: torch.OutOfMemoryError with both allocators' tables, RuntimeError else.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "src/adapters/torch/allocation.h"

namespace commpool::torch_adapter {

// Of the call of ours that failed on this thread just now; 0 where the pool is not known.
[[noreturn]] void ThrowFailure(commpool_status status, commpool_pool pool, const Request& request);

// "commpool's pools on device 0: ...": what an error of PyTorch's own allocator does not know. Empty without pools.
std::string PoolTable(int device);

// Those that torch._C._cuda_attach_out_of_memory_observer adds are told of our failures too.
void ObserveOutOfMemory(const c10::cuda::CUDACachingAllocator::OutOfMemoryObserver& observer);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_FAILURES_H_
