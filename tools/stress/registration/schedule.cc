#include "tools/stress/registration/schedule.h"

#include <algorithm>
#include <random>
#include <utility>

namespace commpool::cli {

namespace {

constexpr uint64_t kKibi = 1024;
constexpr uint64_t kGrowth = 4096 * kKibi;  // more than any earlier segment has

class Maker {
 public:
  Maker(uint64_t seed, uint64_t number, int ranks, RegistrationPlant plant) : random_(seed * 1'000'003 + number) {
    schedule_.ranks = ranks;
    schedule_.number = number;
    schedule_.plant = plant;
    schedule_.seed = random_();
    schedule_.second_from = static_cast<int>(Random(static_cast<uint64_t>(ranks - 1)));  // at least two ranks
    schedule_.victim = static_cast<int>(Random(static_cast<uint64_t>(ranks)));
    schedule_.ordered = Random(4) == 0;
  }

  Schedule Make() {
    Add({.kind = StepKind::kReserve, .bytes = RandomReserve()});
    const uint64_t length = 4 + Random(12);
    for (uint64_t step = 0; step < length; ++step) AddRandom();
    if (schedule_.plant == RegistrationPlant::kNone) {
      if (Random(32) == 0) AddDeath();
    } else {
      AddPlant();
    }
    if (schedule_.death == Death::kNone) {
      while (!live_.empty()) AddFree();
      CloseOther();
    }
    return std::move(schedule_);
  }

 private:
  uint64_t Random(uint64_t bound) { return random_() % bound; }
  uint64_t RandomReserve() { return (1 + Random(8)) * 64 * kKibi - Random(2) * Random(4096); }

  void Add(Step step) { schedule_.steps.push_back(step); }

  void AddRandom() {
    const uint64_t kind = Random(100);
    if (kind < 30) return AddAllocate();
    if (kind < 44 && !live_.empty()) return AddFree();
    if (kind < 66 && !live_.empty()) return AddReduce();
    if (kind < 76) return Add({.kind = StepKind::kReserve, .bytes = RandomReserve()});
    if (kind < 78) return Add({.kind = StepKind::kReserve, .bytes = kStressLimitBytes + RandomReserve()});
    if (kind < 80) return AddShortReserve();
    if (kind < 86) return Add({.kind = StepKind::kReclaim});
    if (kind < 88) return Add({.kind = StepKind::kSleep, .bytes = Random(2)});
    if (kind < 91) return Add({.kind = StepKind::kTrim, .bytes = Random(2) * RandomReserve()});
    if (Random(4) == 0) return AddStreamWork();
    if (second_ == Second::kGone) return AddAllocate();
    if (Random(4) == 0) return AddOther();
    const bool planted = schedule_.plant != RegistrationPlant::kNone;
    if (kind < 98 || second_ == Second::kUnknown || planted) return Toggle();
    AddAbandon();
  }

  void AddAllocate() {
    const uint64_t bytes = Random(20) == 0 ? kStressLimitBytes : 1 + Random(Random(2) == 0 ? 512 : 48 * kKibi);
    live_.push_back(blocks_++);
    Add({.kind = StepKind::kAllocate, .bytes = bytes});
  }
  void AddFree() {
    const size_t place = Random(live_.size());
    Add({.kind = StepKind::kFree, .block = live_[place]});
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(place));
  }
  void AddReduce() {
    const size_t block = live_[Random(live_.size())];
    const size_t target = Random(2) == 0 ? block : live_[Random(live_.size())];
    const Over over = second_ == Second::kRegistered && Random(2) == 0 ? Over::kSecond : Over::kHome;
    Add({.kind = StepKind::kReduce, .block = block, .target = target, .over = over});
  }
  void Toggle() {
    const bool known = second_ == Second::kRegistered;
    Add({.kind = known ? StepKind::kDeregister : StepKind::kRegister});
    second_ = known ? Second::kUnknown : Second::kRegistered;
  }
  // Only pools with deferred frees can serve captures.
  void AddStreamWork() {
    const bool replaces = schedule_.ordered || Random(2) == 0;
    Add({.kind = replaces ? StepKind::kReplaceStream : StepKind::kCapture, .bytes = 1 + Random(16 * kKibi)});
  }
  void AddShortReserve() {
    if (other_) Add({.kind = StepKind::kReclaim});  // so that no rank still makes memory of the other pool
    Add({.kind = StepKind::kReserveShort, .bytes = RandomReserve()});
  }
  void AddOther() {
    if (!other_) return Open();
    if (Random(3) == 0) return CloseOther();
    Add({.kind = StepKind::kGrowOther, .bytes = RandomReserve()});
  }
  void Open() {
    other_ = true;
    Add({.kind = StepKind::kOpenOther, .bytes = RandomReserve()});
  }
  void CloseOther() {
    if (std::exchange(other_, false)) Add({.kind = StepKind::kCloseOther});
  }
  void AddAbandon() {
    CloseOther();
    Add({.kind = StepKind::kReclaim});  // so that no rank is still in a sum over it
    Add({.kind = StepKind::kAbandon});
    second_ = Second::kGone;
  }

  void AddDeath() {
    CloseOther();
    constexpr Death kDeaths[] = {Death::kBeforeReserve, Death::kInReserve};
    schedule_.death = Random(16) == 0 ? Death::kSilent : kDeaths[Random(2)];
    Die();
  }
  void Die() {
    Add({.kind = StepKind::kReclaim});  // so that NCCL is idle: we cannot test a death inside its own calls
    Add({.kind = StepKind::kDie, .bytes = kGrowth});
  }

  void AddPlant() {
    CloseOther();
    switch (schedule_.plant) {
      case RegistrationPlant::kNone:
        return;
      case RegistrationPlant::kSkipDeregister:
        if (second_ == Second::kUnknown) Toggle();
        Add({.kind = StepKind::kReserve, .bytes = kGrowth});
        Mark();
        return Add({.kind = StepKind::kDestroy});
      case RegistrationPlant::kSwapCalls:
        Mark();
        Add({.kind = StepKind::kReserve, .bytes = RandomReserve()});
        return Add({.kind = StepKind::kTrim});
      case RegistrationPlant::kDropRank:
        schedule_.death = Death::kSilent;
        Die();
        return MarkLast();
      case RegistrationPlant::kUnequalSizes:
        Mark();
        return Add({.kind = StepKind::kReserve, .bytes = RandomReserve()});
    }
  }
  void Mark() { schedule_.planted_at = schedule_.steps.size(); }
  void MarkLast() { schedule_.planted_at = schedule_.steps.size() - 1; }

  enum class Second { kUnknown, kRegistered, kGone };

  std::mt19937_64 random_;
  Schedule schedule_;
  Second second_ = Second::kUnknown;
  bool other_ = false;  // whether a pool across the second communicator is open
  size_t blocks_ = 0;
  std::vector<size_t> live_;
};

std::string Separated(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t place = text.size(); place > 3; place -= 3) text.insert(place - 3, ",");
  return text;
}

}  // namespace

std::vector<Step> Schedule::StepsOf(int rank) const {
  std::vector<Step> mine = steps;
  if (rank != victim) return mine;
  if (plant == RegistrationPlant::kSwapCalls) std::swap(mine[planted_at], mine[planted_at + 1]);
  if (plant == RegistrationPlant::kUnequalSizes) mine[planted_at].bytes += 4096;
  return mine;
}

std::string Describe(const Step& step) {
  const std::string bytes = Separated(step.bytes) + " bytes";
  const std::string block = "block " + std::to_string(step.block);
  switch (step.kind) {
    case StepKind::kReserve:
      return "reserve of " + bytes;
    case StepKind::kReserveShort:
      return "reserve of " + bytes + " where one rank has no memory";
    case StepKind::kAllocate:
      return "allocation of " + bytes;
    case StepKind::kFree:
      return "free of " + block;
    case StepKind::kReduce:
      return std::string("all-reduce over ") + (step.over == Over::kHome ? "home" : "the second communicator") +
             " of " + block + " into block " + std::to_string(step.target);
    case StepKind::kReclaim:
      return "reclaim";
    case StepKind::kTrim:
      return "trim to " + bytes;
    case StepKind::kSleep:
      return step.bytes == 0 ? "sleep that keeps nothing" : "sleep that keeps what blocks hold";
    case StepKind::kRegister:
      return "register_with the second communicator";
    case StepKind::kDeregister:
      return "deregister of the second communicator";
    case StepKind::kCapture:
      return "capture with an allocation of " + bytes;
    case StepKind::kReplaceStream:
      return "release_stream";
    case StepKind::kOpenOther:
      return "pool across the second communicator, with a reserve of " + bytes;
    case StepKind::kGrowOther:
      return "reserve of " + bytes + " in the pool across the second communicator";
    case StepKind::kCloseOther:
      return "close of the pool across the second communicator";
    case StepKind::kAbandon:
      return "abort and abandon of the second communicator";
    case StepKind::kDestroy:
      return "destruction of the second communicator";
    case StepKind::kDie:
      return "reserve of " + bytes + " in which a rank ends";
  }
  return "?";
}

Schedule MakeSchedule(uint64_t seed, uint64_t number, int ranks, RegistrationPlant plant) {
  return Maker(seed, number, ranks, plant).Make();
}

}  // namespace commpool::cli
