// Announces captures to pools. The first allocation that a pool serves on a captured stream tells the pool.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_CAPTURES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_CAPTURES_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "commpool/commpool.h"
#include "src/adapters/torch/forever.h"

namespace commpool::torch_adapter {

uint64_t CaptureOfStream(cudaStream_t stream);  // not for the legacy stream
// Returns the number of the capture that `stream` is part of; 0 if there is none. The legacy stream is never captured.
inline uint64_t CaptureOf(cudaStream_t stream) { return stream == nullptr ? 0 : CaptureOfStream(stream); }

// Owns the announcements that are open. AllocateFromPool announces; PyTorch's end of a capture ends them.
class Captures {
 public:
  // Tells the pool if the stream is captured and nobody has told the pool of that capture.
  commpool_status Announce(commpool_pool pool, cudaStream_t stream) {
    const uint64_t capture = CaptureOf(stream);
    if (capture == 0 && count_.load(std::memory_order_relaxed) == 0) return COMMPOOL_OK;
    return Announce(pool, stream, capture);
  }
  // Ends the announcements of captures that have ended. The router calls it when PyTorch says that one may have.
  void EndFinished();

 private:
  commpool_status Announce(commpool_pool pool, cudaStream_t stream, uint64_t capture);

  struct Announced {
    commpool_pool pool = 0;
    cudaStream_t stream = nullptr;
    uint64_t capture = 0;
    commpool_capture handle = 0;
  };
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::vector<Announced> announced_;
};

inline constinit Forever<Captures> torch_captures;
inline Captures& TorchCaptures() { return torch_captures.object; }

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_CAPTURES_H_
