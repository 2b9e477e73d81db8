// One rank's part of a schedule: its pool, its steps, and the violations that it finds. One thread.
#pragma once

#include <atomic>
#include <latch>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/library/pool/runtime.h"
#include "tools/stress/registration/ranks.h"
#include "tools/stress/registration/schedule.h"

namespace commpool::cli {

// Shared by the ranks of one schedule.
struct ScheduleRun {
  internal::Runtime& runtime;
  const Schedule& schedule;
  uint64_t deadline_ms;
  std::latch survivors;                    // for a silent death: the ranks that have ended
  std::vector<std::atomic<size_t>> steps;  // the current step of each rank

  ScheduleRun(internal::Runtime& used, const Schedule& made, uint64_t deadline)
      : runtime(used),
        schedule(made),
        deadline_ms(deadline),
        survivors(made.ranks - 1),
        steps(static_cast<size_t>(made.ranks)) {}
};

// How one rank's schedule ended.
struct RankOutcome {
  std::vector<std::string> shared;      // equal on every rank: the code and the offset of each step
  std::vector<std::string> violations;  // such as "step 5 (reserve of 65,536 bytes): ..."
  uint64_t left_bytes = 0;              // of a pool that ended without close(), as in a process that dies
};

// A driver table for the pools' runtime that can end a rank in the middle of a growth.
std::shared_ptr<const internal::Driver> MortalDriver(const std::shared_ptr<const internal::Driver>& driver);

// Where the schedule ends in an error or a death, it aborts the rank's communicators.
RankOutcome RunRank(ScheduleRun& run, const internal::Driver& driver, StressRank& rank);

}  // namespace commpool::cli
