// Counts how often each kind of fault happened at each point of the protocol, and how often survivors continued. One
// thread.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_COVERAGE_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_COVERAGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

class Coverage {
 public:
  void Add(const Schedule& schedule, const std::vector<RankRecord>& records);

  // A line for each point, a column for each kind; "-" where such a fault makes no sense. Below, if there were any, the
  // pools that survivors moved to a home of their own.
  std::string Table() const;

 private:
  std::map<std::pair<Point, Kind>, uint64_t> counts_;
  uint64_t moved_ = 0;
};

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_COVERAGE_H_
