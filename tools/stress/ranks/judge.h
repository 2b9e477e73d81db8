// What is wrong with how the ranks of a schedule went on: nobody waits for long, names a healthy rank, disagrees with
// another survivor, or leaves anything behind. A function of the records alone.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_JUDGE_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_JUDGE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

// A line each; empty where all is as it should be.
std::vector<std::string> Judge(const Schedule& schedule, const std::vector<RankRecord>& records, uint64_t deadline_ms);

// The ranks that an error names, but for the one that speaks ("rank 2 of 4").
std::set<int> NamedRanks(const std::string& message);

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_JUDGE_H_
