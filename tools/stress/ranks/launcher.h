// Runs one schedule of `commpool_stress ranks`: starts a process for each rank, passes communicator ids between them,
// ends stops, and ends all. One thread for each schedule; several may run at once.
#pragma once

#include <vector>

#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"
#include "tools/stress/ranks/worker.h"

namespace commpool::cli::stress_ranks {

// Returns what each rank did. All workers get `common`. Its `hosts` is 0, or the number of network namespaces (host1
// and so on) to spread the ranks over. Ends processes that do nothing for long.
std::vector<RankRecord> Launch(const Schedule& schedule, const WorkerOptions& common, int hosts);

}  // namespace commpool::cli::stress_ranks
