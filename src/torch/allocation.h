// Turns a request of PyTorch's into a block of ours: from one pool, or from whatever catches the request.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "commpool/commpool.h"
#include "src/torch/commpool_calls.h"
#include "src/torch/scopes.h"
#include "src/torch/segments.h"

namespace commpool::torch_adapter {

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
// Counts the blocks that the router has handed out and that are alive, also where their pool has ended.
int64_t LiveBlocks();
inline bool IsOurs(c10::DeleterFnPtr deleter) { return deleter == &ReleaseBlock || deleter == &ReleaseLargeBlock; }

// Finds the live block of ours that holds the address.
std::optional<commpool_block> OurBlock(const void* pointer);

// PyTorch never destroys its own streams, so they are promised to last. A stream that the program made may end before
// its last use here: for such an external stream the id is the handle. A promise costs a look-up, except for the stream
// that the thread promised last.
[[gnu::always_inline]] inline cudaStream_t Promised(c10::cuda::CUDAStream stream) {
  thread_local cudaStream_t last = nullptr;
  const cudaStream_t handle = stream.stream();
  if (handle == last) return handle;
  const bool external = stream.id() == static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(handle));
  if (handle != nullptr && !external && Commpool().promise_stream(handle) == COMMPOOL_OK) last = handle;
  return handle;
}

// A default stream's handle means the current device's stream to the library, so the stream's device is current
// meanwhile.
commpool_status RecordStream(void* pointer, c10::cuda::CUDAStream stream);

}  // namespace commpool::torch_adapter
