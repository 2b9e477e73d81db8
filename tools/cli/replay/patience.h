// How long a release is waited for: busily at first, since the answer is microseconds away. One thread.
#ifndef COMMPOOL_TOOLS_CLI_REPLAY_PATIENCE_H_
#define COMMPOOL_TOOLS_CLI_REPLAY_PATIENCE_H_

#include <chrono>
#include <cstddef>
#include <thread>

namespace commpool::cli {

class Patience {
 public:
  // Among several streams work may wait for work that another stream still holds: that is not waited for.
  explicit Patience(size_t streams)
      : limit_(streams > 1 ? std::chrono::microseconds(50) : std::chrono::microseconds(10'000'000)) {}

  // True once `done()` is; false where it took too long.
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

 private:
  std::chrono::microseconds limit_;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_REPLAY_PATIENCE_H_
