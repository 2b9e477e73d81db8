// Rounds of agreement between many ranks in one process, over real sockets: each rank is a thread with its own link.
#pragma once

#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// What one process sends and receives in a round.
struct Traffic {
  double messages = 0;
  double bytes = 0;
};

// How to call for several pools of a rank: in one call, or in one call each.
enum class PoolCalls { kOne, kOneEach };

struct SimulatedRound {
  int ranks = 0;
  int pools = 1;
  PoolCalls calls = PoolCalls::kOne;
  Traffic busiest;       // of rank 0
  Traffic other;         // the highest of all others
  double median_us = 0;  // of the slowest rank
  double p99_us = 0;
};

// A round: all ranks send their intents for a reserve and get the result. For one pool; for more, `pools` of them one
// after another and in one call. Link watchers do not run meanwhile, so heartbeats do not count. NotSupported where the
// system has too few descriptors.
Result<std::vector<SimulatedRound>> SimulateAgreement(int ranks, int pools, int rounds);

// How the busiest process's bytes grow with the ranks: the slope of the line through the logarithms. REQUIRES: two
// different numbers of ranks.
double SlopeOfBytes(const std::vector<SimulatedRound>& sizes);

}  // namespace commpool::cli
