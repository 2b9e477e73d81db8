// What the ranks of one schedule of `commpool_stress ranks` do, and the faults that meet them.
//
// Values, made from a seed alone: the command and each of its processes make the same.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_SCHEDULE_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_SCHEDULE_H_

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
  kBurst,   // as many allocations and frees as make the library publish them
  kReclaim,
  kTrim,
  kVerify,
  kRegister,    // with the second communicator
  kDeregister,  // from it
  kCapture,     // a block that lives in a graph, and replays
  kReplaceStream,
  kClose
};

struct Step {
  Action action = Action::kReclaim;
  size_t pool = 0;
  uint64_t bytes = 0;
  size_t block = 0;  // the number of its allocation among the pool's
};

// Whether every rank of the pool's home takes part.
bool IsCollective(Action action);
// "reserve of 65536 bytes in pool 1".
std::string Describe(const Step& step);

// How the second communicator comes about.
enum class Second { kJoined, kSplit, kShrunk, kGrown };
enum class Waiting { kBlocking, kNonblocking };  // of NCCL's calls
enum class Home { kWorld, kSecond };

struct Schedule {
  uint64_t number = 0;
  int ranks = 2;
  Waiting waiting = Waiting::kBlocking;
  Second second = Second::kJoined;
  std::vector<Home> pools = {};
  std::vector<Step> steps = {};
  std::vector<Fault> faults = {};

  // The ranks of the second communicator that this rank is in, in their order in it; empty where it is in none.
  std::vector<int> SecondOf(int rank) const;
  // Those that share a pool's home with the rank; empty where it is not in it.
  std::vector<int> HomeOf(size_t pool, int rank) const;
  bool Takes(int rank, const Step& step) const { return !HomeOf(step.pool, rank).empty(); }
  // A rank's own steps: another order where it creates pools crossed.
  std::vector<Step> StepsOf(int rank) const;
  bool IsVictim(int rank) const;
  // Those that every survivor has, whatever the call in which a rank was lost: created before, and not closed.
  std::vector<size_t> PoolsOfSurvivors() const;
};

// "2 kills ..., blocking": what a failure's report begins with.
std::string Describe(const Schedule& schedule);

Schedule MakeSchedule(uint64_t seed, uint64_t number, int ranks);

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_SCHEDULE_H_
