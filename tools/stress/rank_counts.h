// How many ranks the schedules of a stress command have: "4", or "2:8".
#ifndef COMMPOOL_TOOLS_STRESS_RANK_COUNTS_H_
#define COMMPOOL_TOOLS_STRESS_RANK_COUNTS_H_

#include <optional>
#include <string>

namespace commpool::cli {

struct RankCounts {
  int least = 2;
  int most = 8;
};

// Nothing for a text that is neither, and for fewer ranks than 2 or more than 8.
std::optional<RankCounts> ParseRanks(const std::string& text);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_RANK_COUNTS_H_
