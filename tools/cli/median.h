// The middle and the tail of some measurements. Any thread.
#ifndef COMMPOOL_TOOLS_CLI_MEDIAN_H_
#define COMMPOOL_TOOLS_CLI_MEDIAN_H_

#include <algorithm>
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

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_MEDIAN_H_
