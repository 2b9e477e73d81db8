// Judges how the ranks of a schedule behaved: no rank may wait for long, name a healthy rank, disagree with another
// survivor, or leave anything behind. A function of the records alone.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

// One line for each violation.
std::vector<std::string> Judge(const Schedule& schedule, const std::vector<RankRecord>& records, uint64_t deadline_ms);

// The ranks that an error names, without the rank that speaks ("rank 2 of 4").
std::set<int> NamedRanks(const std::string& message);

}  // namespace commpool::cli::stress_ranks
