// Rounds of agreement between many ranks of one process, over real sockets: each a thread with a link of its own.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_SIMULATED_AGREEMENT_H_
#define COMMPOOL_TOOLS_CLI_BENCH_SIMULATED_AGREEMENT_H_

#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// What one process sends and receives in a round.
struct Traffic {
  double messages = 0;
  double bytes = 0;
};

// How several pools of a rank are called for: in one call, or in one each.
enum class PoolCalls { kOne, kOneEach };

struct SimulatedRound {
  int ranks = 0;
  int pools = 1;
  PoolCalls calls = PoolCalls::kOne;
  Traffic busiest;       // rank 0
  Traffic other;         // the most of any other
  double median_us = 0;  // each of the slowest rank
  double p99_us = 0;
};

// A round is the intents of all ranks in a reserve, and what they agree on: of one pool and, where there are more, of
// `pools` one after another and in one call. Watchers do not run meanwhile, so heartbeats are not counted. NotSupported
// where the system has not enough descriptors.
Result<std::vector<SimulatedRound>> SimulateAgreement(int ranks, int pools, int rounds);

// By how much the busiest process's bytes grow with the ranks: the slope of the line through the logarithms.
// REQUIRES: two different numbers of ranks.
double SlopeOfBytes(const std::vector<SimulatedRound>& sizes);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_SIMULATED_AGREEMENT_H_
