#include "src/adapters/torch/captures.h"

#include "src/adapters/torch/commpool_calls.h"

namespace commpool::torch_adapter {

uint64_t CaptureOfStream(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t asked = cudaStreamGetCaptureInfo(stream, &status, &number, nullptr, nullptr, nullptr, nullptr);
#else
  const cudaError_t asked = cudaStreamGetCaptureInfo(stream, &status, &number);
#endif
  return asked == cudaSuccess && status == cudaStreamCaptureStatusActive ? number : 0;
}

commpool_status Captures::Announce(commpool_pool pool, cudaStream_t stream, uint64_t capture) {
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

void Captures::EndFinished() {
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

}  // namespace commpool::torch_adapter
