// The steps of the ranks of one schedule of `commpool_stress registration`: the same on each, a planted fault aside.
//
// Values, made from a seed alone. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace commpool::cli {

enum class RegistrationPlant {
  kNone,
  kSkipDeregister,  // a communicator is destroyed while windows are registered with it
  kSwapCalls,       // one rank makes two calls in the other order
  kDropRank,        // one rank stops in the middle of a reserve without a word
  kUnequalSizes     // one rank reserves other bytes
};

enum class StepKind {
  kReserve,
  kReserveShort,  // one rank has no memory for it
  kAllocate,
  kFree,
  kReduce,
  kReclaim,
  kTrim,
  kSleep,  // and wake, keeping nothing or the blocks' contents
  kRegister,
  kDeregister,
  kCapture,        // a block that belongs to a graph, and replays
  kReplaceStream,  // release_stream, and another stream in its place
  kOpenOther,      // a pool across the second communicator, with a block
  kGrowOther,
  kCloseOther,
  kAbandon,  // aborts the second communicator
  kDestroy,  // destroys the second communicator; planted
  kDie       // in a reserve: one rank ends, and the schedule with it
};

enum class Over { kHome, kSecond };

struct Step {
  StepKind kind = StepKind::kReclaim;
  uint64_t bytes = 0;  // of a reserve or an allocation; kept by a trim; for a sleep 0 where it keeps nothing
  size_t block = 0;    // the allocation number of the block to free or sum
  size_t target = 0;   // of the sum; equal to `block` for in place
  Over over = Over::kHome;
};

// Such as "reserve of 65,536 bytes".
std::string Describe(const Step& step);

enum class Death {
  kNone,
  kBeforeReserve,  // the others find it gone in their reserve
  kInReserve,      // after all ranks have agreed to grow
  kSilent          // the same, but its connection stays open
};

struct Schedule {
  int ranks = 2;
  uint64_t number = 0;
  uint64_t seed = 0;     // for the ranks' own choices: when they free
  int second_from = 0;   // the second communicator has the ranks from this one on
  bool ordered = false;  // frees take effect at once
  Death death = Death::kNone;
  int victim = 0;  // of a death or a plant
  RegistrationPlant plant = RegistrationPlant::kNone;
  size_t planted_at = 0;  // step
  std::vector<Step> steps = {};

  std::vector<Step> StepsOf(int rank) const;
};

inline constexpr uint64_t kStressLimitBytes = 16 << 20;  // of each pool, more than a schedule reserves

Schedule MakeSchedule(uint64_t seed, uint64_t number, int ranks, RegistrationPlant plant);

}  // namespace commpool::cli
