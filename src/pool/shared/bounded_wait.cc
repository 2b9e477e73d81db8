#include "src/pool/shared/bounded_wait.h"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "src/base/host_patience.h"

namespace commpool::internal {

std::optional<CUresult> SynchroniseWithin(const Driver& driver, CUcontext context, uint64_t deadline_ms) {
  // A collective whose rank died never ends: so a thread of its own waits, and is left to it where the deadline passes.
  auto synchronise = std::make_shared<std::packaged_task<CUresult()>>([cuda = driver.cuda, context] {
    // On a thread as new as this one a capture anywhere would forbid the wait.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuda.cuThreadExchangeStreamCaptureMode(&mode);
    const CUresult current = cuda.cuCtxSetCurrent(context);
    return current == CUDA_SUCCESS ? cuda.cuCtxSynchronize() : current;
  });
  std::future<CUresult> result = synchronise->get_future();
  Insist([&] { std::thread([synchronise] { (*synchronise)(); }).detach(); });
  if (result.wait_for(std::chrono::milliseconds(deadline_ms)) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace commpool::internal
