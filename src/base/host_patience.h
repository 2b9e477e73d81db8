// A step between ranks that the host refuses memory for is tried again for a while: the other ranks wait for this one
// as for any that is late, and a round that one rank leaves half-way breaks their channel.
#ifndef COMMPOOL_SRC_BASE_HOST_PATIENCE_H_
#define COMMPOOL_SRC_BASE_HOST_PATIENCE_H_

#include <chrono>
#include <new>
#include <system_error>
#include <thread>

namespace commpool::internal {

inline constexpr std::chrono::seconds kHostPatience(2);

// What `step` returns; throws what it throws where the host has had no memory, or no thread, for so long. REQUIRES: the
// step changes nothing before it succeeds.
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
