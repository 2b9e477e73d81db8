// How long to wait for a release: in a busy loop at first, since the answer comes within microseconds. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>

#include "src/library/driver/diagnosis.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

class Patience {
 public:
  // With several streams, work may wait for work that another stream still holds: then waits are short.
  explicit Patience(size_t streams)
      : limit_(streams > 1 ? std::chrono::microseconds(50) : std::chrono::microseconds(10'000'000)) {}

  // Waits until `done()` is true; false where that took too long.
  template <typename Done>
  bool Wait(Done done) const {
    constexpr int kBusyTurns = 2000;
    for (int turn = 0; turn < kBusyTurns; ++turn) {
      if (done()) return true;
    }
    const auto start = std::chrono::steady_clock::now();
    while (!done()) {
      if (std::chrono::steady_clock::now() - start > limit_) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // Whether it stops waiting without an answer.
  bool gives_up() const { return limit_ < std::chrono::seconds(1); }

 private:
  std::chrono::microseconds limit_;
};

// Waits until the stream has nothing to do. OK also where patience gives up before.
inline Status WaitForStream(const internal::Driver& driver, CUstream stream, const Patience& patience) {
  CUresult result = CUDA_ERROR_NOT_READY;
  patience.Wait([&] { return (result = driver.cuda.cuStreamQuery(stream)) != CUDA_ERROR_NOT_READY; });
  if (result == CUDA_ERROR_NOT_READY && patience.gives_up()) return Status();
  return internal::CheckCuda(driver, result, {.call = "cuStreamQuery", .purpose = "replayed work"});
}

}  // namespace commpool::cli
