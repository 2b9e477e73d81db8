#include "src/registration/separate_call.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "src/base/host_patience.h"
#include "src/driver/diagnosis.h"

namespace commpool::internal {

namespace {

// How often a wait for NCCL's call looks whether a rank is lost.
constexpr std::chrono::milliseconds kLook{10};

}  // namespace

std::future<ncclResult_t> CallSeparately(const Driver& driver, CUcontext context, std::function<ncclResult_t()> call) {
  HearLastWords(driver);
  // The other ranks are on their way into the call.
  auto task = Insist([&] {
    return std::make_shared<std::packaged_task<ncclResult_t()>>(
        [set_current = driver.cuda.cuCtxSetCurrent, context, call] {
          return set_current(context) == CUDA_SUCCESS ? call() : ncclUnhandledCudaError;
        });
  });
  Insist([&] { std::thread([task] { (*task)(); }).detach(); });
  return task->get_future();
}

bool HasReturned(const std::future<ncclResult_t>& call, const Communicator& communicator,
                 std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  while (Clock::now() < deadline && !(communicator.lost != nullptr && communicator.lost->any())) {
    if (call.wait_until(std::min(deadline, Clock::now() + kLook)) == std::future_status::ready) return true;
  }
  return false;
}

}  // namespace commpool::internal
