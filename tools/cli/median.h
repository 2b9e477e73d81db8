// The median of some measurements. Any thread.
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

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_MEDIAN_H_
