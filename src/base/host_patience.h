// Repeats a step for a while when the host refuses memory for it. For steps of a collective call: the other ranks wait
// for a late rank anyway, but a rank that leaves a round half-way breaks their channel.
#ifndef COMMPOOL_SRC_BASE_HOST_PATIENCE_H_
#define COMMPOOL_SRC_BASE_HOST_PATIENCE_H_

#include <chrono>
#include <new>
#include <system_error>
#include <thread>

namespace commpool::internal {

inline constexpr std::chrono::seconds kHostPatience(2);

// Returns what `step` returns. Throws its exception where the host refuses memory or a thread for too long. REQUIRES:
// the step changes nothing before it succeeds.
template <typename Step>
auto Insist(Step step) {
  const auto limit = std::chrono::steady_clock::now() + kHostPatience;
  for (;;) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      if (std::chrono::steady_clock::now() > limit) throw;
    } catch (const std::system_error&) {  // no thread
      if (std::chrono::steady_clock::now() > limit) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_PATIENCE_H_
