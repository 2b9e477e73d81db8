#include "tools/stress/ranks/schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace commpool::cli::stress_ranks {

bool IsCollective(Action action) {
  switch (action) {
    case Action::kCreate:
    case Action::kReserve:
    case Action::kReclaim:
    case Action::kTrim:
    case Action::kVerify:
    case Action::kRegister:
    case Action::kDeregister:
    case Action::kClose:
      return true;
    default:
      return false;
  }
}

std::string Describe(const Step& step) {
  const std::string pool = "pool " + std::to_string(step.pool);
  const std::string bytes = std::to_string(step.bytes) + " bytes";
  const std::string block = "block " + std::to_string(step.block) + " of " + pool;
  switch (step.action) {
    case Action::kCreate:
      return "create of " + pool;
    case Action::kReserve:
      return "reserve of " + bytes + " in " + pool;
    case Action::kAllocate:
      return "allocation of " + bytes + " in " + pool;
    case Action::kFree:
      return "free of " + block;
    case Action::kRecord:
      return "another stream's use of " + block;
    case Action::kReduce:
      return "all-reduce of " + block;
    case Action::kBurst:
      return "burst of allocations in " + pool;
    case Action::kReclaim:
      return "reclaim of " + pool;
    case Action::kTrim:
      return "trim of " + pool + " to " + bytes;
    case Action::kVerify:
      return "verify of " + pool;
    case Action::kRegister:
      return "register_with of " + pool;
    case Action::kDeregister:
      return "deregister of " + pool;
    case Action::kCapture:
      return "capture in " + pool;
    case Action::kReplaceStream:
      return "release_stream";
    case Action::kClose:
      return "close of " + pool;
  }
  return "?";
}

std::vector<int> Schedule::SecondOf(int rank) const {
  std::vector<int> members;
  for (int other = 0; other < ranks; ++other) {
    const bool both = second == Second::kSplit   ? other % 2 == rank % 2
                      : second == Second::kGrown ? true
                                                 : other != 0 && rank != 0;
    if (both) members.push_back(other);
  }
  return members;
}

std::vector<int> Schedule::HomeOf(size_t pool, int rank) const {
  if (pools[pool] == Home::kSecond) return SecondOf(rank);
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Step> Schedule::StepsOf(int rank) const {
  std::vector<Step> mine = steps;
  for (const Fault& fault : faults) {
    if (fault.victim == rank && fault.kind == Kind::kCrossed) std::swap(mine[0], mine[1]);
  }
  return mine;
}

bool Schedule::IsVictim(int rank) const {
  return std::any_of(faults.begin(), faults.end(), [rank](const Fault& fault) { return fault.victim == rank; });
}

std::vector<size_t> Schedule::PoolsOfSurvivors() const {
  size_t first = steps.size();
  size_t last = 0;
  for (const Fault& fault : faults) {
    first = std::min(first, fault.step);
    last = std::max(last, fault.step);
  }
  std::vector<size_t> found;
  for (size_t pool = 0; pool < pools.size(); ++pool) {
    const auto is = [&](Action action) {
      return [pool, action](const Step& step) { return step.pool == pool && step.action == action; };
    };
    const auto faulty = steps.begin() + static_cast<std::ptrdiff_t>(first);
    const bool created = std::any_of(steps.begin(), faulty, is(Action::kCreate));
    // The call during which a rank is lost may succeed on some ranks and fail on others.
    const auto closed = std::find_if(steps.begin(), steps.end(), is(Action::kClose)) - steps.begin();
    if (pools[pool] == Home::kWorld && created && static_cast<size_t>(closed) > last + 1) found.push_back(pool);
  }
  return found;
}

std::string Describe(const Schedule& schedule) {
  std::string text = std::to_string(schedule.ranks) + " ranks, " +
                     (schedule.waiting == Waiting::kBlocking ? "blocking" : "nonblocking") + " communicators";
  for (const Fault& fault : schedule.faults) text += ", " + Describe(fault);
  return text;
}

}  // namespace commpool::cli::stress_ranks
