// Turns a request of PyTorch's into a block of ours: from one pool, and from whatever catches the request.
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

// A block from the innermost scope, routing or default pool that catches the request; null where none does, and
// PyTorch's own allocator is asked. Throws PyTorch's errors where the pool that caught it fails.
void* AllocateCaught(const Request& request);

// The deleters of AllocateCaught's blocks: of at most kSmallRequest, and of more. They work at any time, in forked
// children and after everything else is gone.
void ReleaseBlock(void* pointer);
void ReleaseLargeBlock(void* pointer);
inline c10::DeleterFnPtr DeleterOf(uint64_t bytes) {
  return bytes > kSmallRequest ? &ReleaseLargeBlock : &ReleaseBlock;
}
inline bool IsOurs(c10::DeleterFnPtr deleter) { return deleter == &ReleaseBlock || deleter == &ReleaseLargeBlock; }

// The live block of ours that holds the address.
std::optional<commpool_block> OurBlock(const void* pointer);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_ALLOCATION_H_
