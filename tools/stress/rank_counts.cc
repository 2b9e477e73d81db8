#include "tools/stress/rank_counts.h"

#include <cstdio>

namespace commpool::cli {

std::optional<RankCounts> ParseRanks(const std::string& text) {
  RankCounts counts;
  char rest = 0;
  const int read = std::sscanf(text.c_str(), "%d:%d%c", &counts.least, &counts.most, &rest);
  if (read == 1 && text.find(':') == std::string::npos) counts.most = counts.least;
  if (read < 1 || read > 2 || counts.least < 2 || counts.most > 8 || counts.least > counts.most) return std::nullopt;
  return counts;
}

}  // namespace commpool::cli
