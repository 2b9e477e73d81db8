// The clock of recordings.
#ifndef COMMPOOL_SRC_LIBRARY_RECORDING_CLOCK_H_
#define COMMPOOL_SRC_LIBRARY_RECORDING_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace commpool::internal::recording {

// Nanoseconds of the steady clock, of which all times of a recording are.
inline uint64_t Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace commpool::internal::recording

#endif  // COMMPOOL_SRC_LIBRARY_RECORDING_CLOCK_H_
