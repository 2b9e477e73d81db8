// Where the time goes until a symmetric pool serves its first window, step by step: NCCL's own set-up of a communicator
// apart from ours, and the whole beside the same memory made and registered by hand. Collective; one thread a rank.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_REGISTRATION_STEPS_H_
#define COMMPOOL_TOOLS_CLI_BENCH_REGISTRATION_STEPS_H_

#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/bench/nccl_meter.h"
#include "tools/cli/median.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

struct RegistrationStep {
  std::string key;   // "first_window"
  std::string what;  // "NCCL: a communicator's first window"
  Cost cost;
};

struct RegistrationSteps {
  std::vector<RegistrationStep> steps;
  // Creating a pool and reserving, over ncclMemAlloc and ncclCommWindowRegister of as much on the same communicator,
  // which has had both an all-gather and a window: of alternating rounds.
  Spread pool_to_by_hand;
  // Four windows in a group of NCCL's, over the same in turn: on one communicator, and on two.
  Spread group_to_turn;
  Spread group_to_turn_of_two;
};

Result<RegistrationSteps> MeasureRegistrationSteps(const Ranks& ranks, const RankDevice& device, uint64_t bytes,
                                                   int rounds);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_REGISTRATION_STEPS_H_
