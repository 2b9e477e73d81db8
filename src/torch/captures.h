// Announces captures to pools. The first allocation that a pool serves on a captured stream tells the pool.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "src/torch/commpool_calls.h"
#include "src/torch/native.h"

namespace commpool::torch_adapter {

inline uint64_t CaptureOfStream(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t asked = cudaStreamGetCaptureInfo(stream, &status, &number, nullptr, nullptr, nullptr, nullptr);
#else
  const cudaError_t asked = cudaStreamGetCaptureInfo(stream, &status, &number);
#endif
  return asked == cudaSuccess && status == cudaStreamCaptureStatusActive ? number : 0;
}

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
  void EndFinished() {
    std::vector<commpool_capture> finished;
    {
      const std::lock_guard lock(mutex_);
      for (size_t place = announced_.size(); place-- > 0;) {
        if (CaptureOf(announced_[place].stream) == announced_[place].capture) continue;
        finished.push_back(announced_[place].handle);
        announced_.erase(announced_.begin() + static_cast<ptrdiff_t>(place));
        count_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
    for (const commpool_capture handle : finished) Commpool().capture_end(handle);
  }

 private:
  commpool_status Announce(commpool_pool pool, cudaStream_t stream, uint64_t capture) {
    if (count_.load(std::memory_order_relaxed) != 0) EndFinished();
    if (capture == 0) return COMMPOOL_OK;
    const std::lock_guard lock(mutex_);
    for (const Announced& announced : announced_)
      if (announced.pool == pool && announced.capture == capture) return COMMPOOL_OK;
    Announced announced = {pool, stream, capture, 0};
    const commpool_status status = Commpool().capture_begin(pool, stream, &announced.handle);
    if (status != COMMPOOL_OK) return status;
    announced_.push_back(announced);
    count_.fetch_add(1, std::memory_order_relaxed);
    return COMMPOOL_OK;
  }

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
