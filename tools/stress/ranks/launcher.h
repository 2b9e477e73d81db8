// Runs one schedule of `commpool_stress ranks`: a process for each rank, ids of communicators between them, the end of
// a stop, and the end of all. One thread a schedule; several schedules may run at once.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_LAUNCHER_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_LAUNCHER_H_

#include <vector>

#include "tools/stress/ranks/record.h"
#include "tools/stress/ranks/schedule.h"
#include "tools/stress/ranks/worker.h"

namespace commpool::cli::stress_ranks {

// What each rank did. `common` is what all workers get; `hosts` of it 0, or the network namespaces host1 and so on over
// which the ranks go round. Processes that do nothing for long are ended.
std::vector<RankRecord> Launch(const Schedule& schedule, const WorkerOptions& common, int hosts);

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_LAUNCHER_H_
