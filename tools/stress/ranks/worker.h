// One process of `commpool_stress ranks`: the command starts itself again for each rank.
#pragma once

#include <cstdint>

#include "tools/stress/ranks/plant.h"

namespace commpool::cli::stress_ranks {

// The options that the command passes to its processes.
struct WorkerOptions {
  int rank = -1;     // -1: this process is the command
  int control = -1;  // descriptor of the connection to the command
  int host = 0;      // a network namespace, host1 and so on; 0: the command's own
  uint64_t seed = 1;
  uint64_t number = 0;  // of the schedule
  int ranks = 2;
  uint64_t deadline_ms = 1000;
  Plant plant = Plant::kNone;
};

// The exit code.
int RunWorker(const WorkerOptions& options);

}  // namespace commpool::cli::stress_ranks
