// The difference of two clock readings with nothing between them, to subtract from measured times. Any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace commpool::cli {

// Longer calls have called the driver or waited, so they count apart.
constexpr int64_t kLongNs = 20'000;

inline int64_t Nanoseconds(std::chrono::steady_clock::time_point start, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end - start).count();
}

inline int64_t ClockOverhead() {
  std::vector<int64_t> samples(1001);
  for (int64_t& sample : samples) {
    const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    sample = Nanoseconds(start, std::chrono::steady_clock::now());
  }
  std::nth_element(samples.begin(), samples.begin() + 500, samples.end());
  return samples[500];
}

}  // namespace commpool::cli
