// Makes a schedule from a seed: pools, steps, and faults.
#include <algorithm>
#include <random>
#include <utility>

#include "tools/stress/ranks/schedule.h"

namespace commpool::cli::stress_ranks {

namespace {

constexpr uint64_t kKibi = 1024;
constexpr uint64_t kGrowth = 1024 * kKibi;  // each such reserve asks for more than any before it

// Whether a call reaches a point.
bool Passes(Point point, const Step& step) {
  const Action action = step.action;
  switch (point) {
    case Point::kBetween:
      return true;
    case Point::kCreate:
    case Point::kConnect:
    case Point::kPort:
      return action == Action::kCreate;
    case Point::kFrame:
    case Point::kVerdict:
    case Point::kHalfVerdict:
      return IsCollective(action);
    case Point::kMake:
      return action == Action::kReserve;
    case Point::kRegister:
    case Point::kRegistered:
      return action == Action::kReserve || action == Action::kRegister;
    case Point::kDeregister:
      return action == Action::kDeregister || action == Action::kClose || (action == Action::kTrim && step.bytes == 0);
    case Point::kUnmap:
      return action == Action::kClose || (action == Action::kTrim && step.bytes == 0);
    case Point::kPublish:
      return action == Action::kBurst;
  }
  return false;
}

class Maker {
 public:
  Maker(uint64_t seed, uint64_t number, int ranks) : random_(seed * 1'000'003 + number) {
    schedule_.number = number;
    schedule_.ranks = ranks;
    schedule_.waiting = Random(2) == 0 ? Waiting::kBlocking : Waiting::kNonblocking;
    schedule_.second = static_cast<Second>(Random(4));
  }

  Schedule Make() {
    MakePools();
    MakeSteps();
    // One schedule in ten has no fault, to judge a sound program too.
    if (Random(10) != 0) AddFault();
    if (!schedule_.faults.empty() && schedule_.ranks > 3 && Random(4) == 0) AddFault();
    LeaveOutReductions();
    return std::move(schedule_);
  }

 private:
  uint64_t Random(uint64_t bound) { return random_() % bound; }
  uint64_t RandomReserve() { return (1 + Random(8)) * 64 * kKibi; }

  void MakePools() {
    const uint64_t count = 1 + Random(3);
    for (uint64_t pool = 0; pool < count; ++pool) {
      schedule_.pools.push_back(pool == 0 || Random(2) == 0 ? Home::kWorld : Home::kSecond);
    }
    live_.resize(schedule_.pools.size());
    blocks_.resize(schedule_.pools.size());
    registered_.resize(schedule_.pools.size());
  }

  void MakeSteps() {
    for (size_t pool = 0; pool < schedule_.pools.size(); ++pool) Add({.action = Action::kCreate, .pool = pool});
    for (size_t pool = 0; pool < schedule_.pools.size(); ++pool) AddGrowth(pool);
    const uint64_t length = 6 + Random(8);
    for (uint64_t step = 0; step < length; ++step) AddRandom(RandomPool());
    for (size_t pool = 0; pool < schedule_.pools.size(); ++pool) AddEnd(pool);
  }
  size_t RandomPool() { return Random(schedule_.pools.size()); }

  void AddRandom(size_t pool) {
    const uint64_t kind = Random(100);
    const bool any = !live_[pool].empty();
    if (kind < 20) return AddAllocate(pool);
    if (kind < 27 && any) return AddFree(pool);
    if (kind < 35 && any) return Add({.action = Action::kReduce, .pool = pool, .block = RandomBlock(pool)});
    if (kind < 40 && any) return Add({.action = Action::kRecord, .pool = pool, .block = RandomBlock(pool)});
    if (kind < 55) return AddGrowth(pool);
    if (kind < 60) return Add({.action = Action::kReserve, .pool = pool, .bytes = RandomReserve()});
    if (kind < 66) return Add({.action = Action::kReclaim, .pool = pool});
    if (kind < 74) return Add({.action = Action::kTrim, .pool = pool, .bytes = Random(2) * RandomReserve()});
    if (kind < 80) return Add({.action = Action::kVerify, .pool = pool});
    if (kind < 86) return Add({.action = Action::kBurst, .pool = pool, .bytes = 512});
    if (kind < 90) return Add({.action = Action::kCapture, .pool = pool, .bytes = 4 * kKibi});
    if (kind < 93) return Add({.action = Action::kReplaceStream, .pool = pool});
    if (schedule_.pools[pool] == Home::kWorld) return Toggle(pool);
    AddAllocate(pool);
  }

  void AddGrowth(size_t pool) {
    growth_ += kGrowth;
    Add({.action = Action::kReserve, .pool = pool, .bytes = growth_});
  }
  void AddAllocate(size_t pool) {
    live_[pool].push_back(blocks_[pool]++);
    Add({.action = Action::kAllocate, .pool = pool, .bytes = 1 + Random(48 * kKibi)});
  }
  void AddFree(size_t pool) {
    const size_t place = Random(live_[pool].size());
    Add({.action = Action::kFree, .pool = pool, .block = live_[pool][place]});
    live_[pool].erase(live_[pool].begin() + static_cast<std::ptrdiff_t>(place));
  }
  size_t RandomBlock(size_t pool) { return live_[pool][Random(live_[pool].size())]; }
  void Toggle(size_t pool) {
    Add({.action = registered_[pool] ? Action::kDeregister : Action::kRegister, .pool = pool});
    registered_[pool] = !registered_[pool];
  }
  void AddEnd(size_t pool) {
    while (!live_[pool].empty()) AddFree(pool);
    if (Random(2) == 0) Add({.action = Action::kTrim, .pool = pool});
    Add({.action = Action::kClose, .pool = pool});
  }
  void Add(Step step) { schedule_.steps.push_back(step); }

  // Draws points and kinds first, so that rare points are tried as often as common ones.
  void AddFault() {
    Fault fault;
    do {
      fault.point = kPoints[Random(kPoints.size())];
      fault.kind = kKinds[Random(kKinds.size())];
    } while (!Happens(fault.kind, fault.point));
    fault.victim = static_cast<int>(Random(static_cast<uint64_t>(schedule_.ranks)));
    if (fault.point == Point::kHalfVerdict || fault.point == Point::kPort) fault.victim = 0;
    if (schedule_.IsVictim(fault.victim)) return;
    if (fault.kind == Kind::kCrossed && !CanCross()) return;
    std::vector<size_t> candidates;
    for (size_t step = 0; step < schedule_.steps.size(); ++step) {
      if (Comes(fault, schedule_.steps[step])) candidates.push_back(step);
    }
    if (candidates.empty()) return;
    fault.step = fault.kind == Kind::kCrossed ? 0 : candidates[Random(candidates.size())];
    const bool repeats =
        fault.point == Point::kFrame || fault.point == Point::kVerdict || fault.point == Point::kHalfVerdict;
    if (repeats) fault.skip = static_cast<int>(Random(4));
    schedule_.faults.push_back(fault);
  }
  // Whether the victim reaches the point in that step. A home of one rank has no protocol.
  bool Comes(const Fault& fault, const Step& step) const {
    const std::vector<int> home = schedule_.HomeOf(step.pool, fault.victim);
    if (home.empty() || !Passes(fault.point, step)) return false;
    const bool leads = home.front() == fault.victim;
    switch (fault.point) {
      case Point::kBetween:
        return true;
      case Point::kHalfVerdict:
        return leads && home.size() > 2;
      case Point::kPort:
        return leads && home.size() > 1;
      case Point::kPublish:
        return !leads;
      default:
        return home.size() > 1;
    }
  }
  bool CanCross() const { return schedule_.pools.size() > 1 && schedule_.pools[0] == schedule_.pools[1]; }

  // An NCCL collective with a lost rank never ends, and the library could not help.
  void LeaveOutReductions() {
    for (const Fault& fault : schedule_.faults) {
      for (size_t step = fault.step; step < schedule_.steps.size() && IsFatal(fault.kind); ++step) {
        Action& action = schedule_.steps[step].action;
        if (action == Action::kReduce) action = Action::kVerify;
      }
    }
  }

  std::mt19937_64 random_;
  Schedule schedule_;
  uint64_t growth_ = 0;
  std::vector<std::vector<size_t>> live_;  // by pool
  std::vector<size_t> blocks_;
  std::vector<bool> registered_;
};

}  // namespace

Schedule MakeSchedule(uint64_t seed, uint64_t number, int ranks) { return Maker(seed, number, ranks).Make(); }

}  // namespace commpool::cli::stress_ranks
