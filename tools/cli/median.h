// The middle, the spread and the tail of some measurements. Any thread.
#ifndef COMMPOOL_TOOLS_CLI_MEDIAN_H_
#define COMMPOOL_TOOLS_CLI_MEDIAN_H_

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

// The median, and an interval that has the median of all such measurements in it with a probability of 95 %, whatever
// their distribution; of fewer than 6 values the whole range, which is less sure. REQUIRES: not empty.
inline Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  // The chance that fewer than `outside` + 1 of the values lie below the true median.
  double chance = std::pow(0.5, static_cast<double>(values.size()));
  double sum = 0;
  size_t outside = 0;
  for (size_t below = 0; sum + chance <= 0.025; ++below) {
    sum += chance;
    outside = below;
    chance *= static_cast<double>(values.size() - below) / static_cast<double>(below + 1);
  }
  return {Median(values), values[outside], values[values.size() - 1 - outside]};
}

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_MEDIAN_H_
