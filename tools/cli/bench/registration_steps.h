// Where the time goes until a symmetric pool serves its first window, step by step. NCCL's set-up of a communicator is
// apart from ours; the whole is compared with the same memory made and registered by hand. Collective; one thread for
// each rank.
#pragma once

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
  // The time to create a pool and reserve, relative to ncclMemAlloc and ncclCommWindowRegister of as much memory. The
  // communicator has had an all-gather and a window before. Alternating rounds.
  Spread pool_to_by_hand;
  // Four windows in one NCCL group, relative to four in turn: on one communicator, and on two.
  Spread group_to_turn;
  Spread group_to_turn_of_two;
};

Result<RegistrationSteps> MeasureRegistrationSteps(const Ranks& ranks, const RankDevice& device, uint64_t bytes,
                                                   int rounds);

}  // namespace commpool::cli
