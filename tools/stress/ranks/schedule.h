// The steps of the ranks of one schedule of `commpool_stress ranks`, and the faults.
//
// Values, made from a seed alone, so the command and each of its processes make the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/stress/ranks/fault.h"

namespace commpool::cli::stress_ranks {

enum class Action {
  kCreate,
  kReserve,
  kAllocate,
  kFree,
  kRecord,  // another stream uses a block
  kReduce,  // an all-reduce of a block in place, over the pool's home
  kBurst,   // enough allocations and frees that the library publishes them
  kReclaim,
  kTrim,
  kVerify,
  kRegister,    // with the second communicator
  kDeregister,  // from it
  kCapture,     // a block that belongs to a graph, and replays
  kReplaceStream,
  kClose
};

struct Step {
  Action action = Action::kReclaim;
  size_t pool = 0;
  uint64_t bytes = 0;
  size_t block = 0;  // the number of its allocation in the pool
};

// Whether every rank of the pool's home takes part.
bool IsCollective(Action action);
// Such as "reserve of 65536 bytes in pool 1".
std::string Describe(const Step& step);

// How the ranks make the second communicator.
enum class Second { kJoined, kSplit, kShrunk, kGrown };
enum class Waiting { kBlocking, kNonblocking };  // whether NCCL's calls block
enum class Home { kWorld, kSecond };

struct Schedule {
  uint64_t number = 0;
  int ranks = 2;
  Waiting waiting = Waiting::kBlocking;
  Second second = Second::kJoined;
  std::vector<Home> pools = {};
  std::vector<Step> steps = {};
  std::vector<Fault> faults = {};

  // The ranks of the second communicator that has this rank, in its order; empty where it has none.
  std::vector<int> SecondOf(int rank) const;
  // The ranks of the pool's home; empty where the rank is not among them.
  std::vector<int> HomeOf(size_t pool, int rank) const;
  bool Takes(int rank, const Step& step) const { return !HomeOf(step.pool, rank).empty(); }
  // A rank's own steps: in another order where it creates pools crossed.
  std::vector<Step> StepsOf(int rank) const;
  bool IsVictim(int rank) const;
  // Pools that every survivor has, whichever call lost the rank: created before, and not closed.
  std::vector<size_t> PoolsOfSurvivors() const;
};

// Such as "2 kills ..., blocking": the beginning of a failure's report.
std::string Describe(const Schedule& schedule);

Schedule MakeSchedule(uint64_t seed, uint64_t number, int ranks);

}  // namespace commpool::cli::stress_ranks
