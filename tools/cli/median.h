// The middle, the spread and the tail of measurements. Any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace commpool::cli {

// REQUIRES: not empty.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// REQUIRES: not empty.
inline double Percentile99(std::vector<double> values) {
  const auto place = values.begin() + static_cast<long>(values.size() * 99 / 100);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

// The median, and an interval that contains the true median with a probability of 95 %, for any distribution. For fewer
// than 6 values the whole range, which is less certain. REQUIRES: not empty.
inline Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // The chance that `below` values lie below the true median, as a logarithm: of 2,000 values the first such chance
  // rounds to 0.
  double log_chance = -static_cast<double>(values.size()) * std::log(2.0);
  double sum = 0;
  size_t outside = 0;
  for (size_t below = 0; sum + std::exp(log_chance) <= 0.025; ++below) {
    sum += std::exp(log_chance);
    outside = below;
    log_chance += std::log(static_cast<double>(values.size() - below) / static_cast<double>(below + 1));
  }
  return {Median(values), values[outside], values[values.size() - 1 - outside]};
}

}  // namespace commpool::cli
