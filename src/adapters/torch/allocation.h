// Turns a request of PyTorch's into a block of ours: from one pool, or from whatever catches the request.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_ALLOCATION_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_ALLOCATION_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <optional>

#include "commpool/commpool.h"
#include "src/adapters/torch/scopes.h"
#include "src/adapters/torch/segments.h"

namespace commpool::torch_adapter {

struct Request {
  int device = 0;
  uint64_t bytes = 0;
  CUstream_st* stream = nullptr;
};

// Returns a block from the innermost scope, routing or default pool that catches the request. Returns null if none
// does: then the caller asks PyTorch's own allocator. Throws PyTorch's errors if the pool that caught the request
// fails.
void* AllocateCaught(const Request& request);

// The deleters of AllocateCaught's blocks: of at most kSmallRequest, and of more. They work at any time, even in forked
// children and when everything else is gone.
void ReleaseBlock(void* pointer);
void ReleaseLargeBlock(void* pointer);
inline c10::DeleterFnPtr DeleterOf(uint64_t bytes) {
  return bytes > kSmallRequest ? &ReleaseLargeBlock : &ReleaseBlock;
}
inline bool IsOurs(c10::DeleterFnPtr deleter) { return deleter == &ReleaseBlock || deleter == &ReleaseLargeBlock; }

// Finds the live block of ours that holds the address.
std::optional<commpool_block> OurBlock(const void* pointer);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_ALLOCATION_H_
