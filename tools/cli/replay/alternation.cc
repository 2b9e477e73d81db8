#include "tools/cli/replay/alternation.h"

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "tools/cli/replay/trace_player.h"
#include "tools/cli/replay/trace_work.h"

namespace commpool::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTurn = 64;
constexpr size_t kRounds = 12;  // in one pass
constexpr size_t kLeastRounds = 6;
constexpr size_t kMostPassesForRounds = 20;  // beyond the time that was asked for

// Keeps the calling thread on its current core.
class OnOneCore {
 public:
  OnOneCore() {
    known_ = sched_getaffinity(0, sizeof(before_), &before_) == 0;
    const int core = sched_getcpu();
    if (!known_ || core < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(core), &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OnOneCore() {
    if (known_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
  bool known_ = false;
};

// One of the two allocators, with its blocks.
class Player final : public TracePlayer {
 public:
  using TracePlayer::TracePlayer;

  struct Times {
    int64_t short_ns = 0;
    int64_t short_events = 0;
    int64_t long_ns = 0;
  };
  // The times since the last call.
  Times Take() { return std::exchange(times_, Times()); }

 private:
  Status Note(int64_t ns) override {
    if (ns >= kLongNs) {
      times_.long_ns += ns;
    } else {
      times_.short_ns += ns;
      ++times_.short_events;
    }
    return Status();
  }

  Times times_;
};

class Alternation {
 public:
  Alternation(const Trace& trace, Player& pool, Player& other)
      : pool_(pool), other_(other), size_(trace.events.size()), half_(size_ / 2) {}

  Result<AlternationMeasures> Run(double seconds) {
    Status status = Play(0, size_);
    if (!status.ok()) return status;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    size_t passes = 0;
    do {
      ++passes;
      status = OnePass(end);
    } while (status.ok() && (Clock::now() < end || (TooFew() && passes < kMostPassesForRounds)) && !IsSure());
    if (!status.ok()) return status;
    measures_.pool_long_us /= static_cast<double>(passes);
    measures_.other_long_us /= static_cast<double>(passes);
    return std::move(measures_);
  }

 private:
  // On a busy machine all events of a round may be long ones: such a round measures nothing.
  bool TooFew() const { return measures_.ratios.size() < kLeastRounds; }

  // A pass ends early where the time is over and enough rounds are measured.
  Status OnePass(Clock::time_point end) {
    pool_.FreeAll();
    other_.FreeAll();
    Status status = Play(0, half_);
    pool_.Take();
    other_.Take();
    for (size_t round = 0; round < kRounds && status.ok(); ++round) {
      if (!TooFew() && Clock::now() >= end) break;
      const size_t timed = size_ - half_;
      status = Play(half_ + timed * round / kRounds, half_ + timed * (round + 1) / kRounds);
      NoteRound(pool_.Take(), other_.Take());
    }
    return status;
  }

  Status Play(size_t first, size_t last) {
    for (size_t from = first; from < last; from += kTurn) {
      const size_t to = std::min(from + kTurn, last);
      std::array<Player*, 2> turns = {&pool_, &other_};
      if (turn_++ % 2 != 0) std::swap(turns[0], turns[1]);
      for (Player* const player : turns) {
        COMMPOOL_TRY(player->Play(from, to));
        COMMPOOL_TRY(player->Release());
      }
    }
    return Status();
  }

  static double PerEvent(int64_t ns, int64_t events) { return static_cast<double>(ns) / static_cast<double>(events); }

  void NoteRound(const Player::Times& pool, const Player::Times& other) {
    measures_.pool_long_us += static_cast<double>(pool.long_ns) / 1000;
    measures_.other_long_us += static_cast<double>(other.long_ns) / 1000;
    if (pool.short_ns == 0 || other.short_ns == 0) return;
    measures_.pool_ns.push_back(PerEvent(pool.short_ns, pool.short_events));
    measures_.other_ns.push_back(PerEvent(other.short_ns, other.short_events));
    measures_.ratios.push_back(measures_.pool_ns.back() / measures_.other_ns.back());
    measures_.wall_ratios.push_back(PerEvent(pool.short_ns + pool.long_ns, other.short_ns + other.long_ns));
  }

  bool IsSure() const {
    if (measures_.ratios.size() < 2 * kRounds) return false;
    const Spread ratio = SpreadOf(measures_.ratios);
    return OutcomeOf(ratio) != Outcome::kUndecided && ratio.high - ratio.low <= 0.02 * ratio.median;
  }

  Player& pool_;
  Player& other_;
  const size_t size_;
  const size_t half_;
  size_t turn_ = 0;
  AlternationMeasures measures_;
};

// Both allocators hold the trace's blocks at once, and an eighth more for fragmentation.
Status CheckRoom(const internal::Driver& driver, const Trace& trace) {
  size_t free = 0;
  size_t total = 0;
  Status status = internal::CheckCuda(driver, driver.cuda.cuMemGetInfo(&free, &total), {.call = "cuMemGetInfo"});
  const uint64_t needed = trace.peak_requested_bytes / 8 * 9 * 2;
  if (!status.ok() || free >= needed) return status;
  return Status(StatusCode::kOutOfMemory, trace.name + " twice needs " + internal::FormatBytes(needed) + ", and " +
                                              internal::FormatBytes(free) + " are free: --scale makes it smaller");
}

const char* NameOf(Outcome outcome) {
  return outcome == Outcome::kBelow ? "below" : outcome == Outcome::kAbove ? "above" : "undecided";
}

}  // namespace

Outcome OutcomeOf(const Spread& ratio) {
  if (ratio.high < 1) return Outcome::kBelow;
  return ratio.low > 1 ? Outcome::kAbove : Outcome::kUndecided;
}

Result<AlternationMeasures> Alternate(SoloDevice& device, const Trace& trace, ReplayedAllocator& pool,
                                      ReplayedAllocator& other, double seconds) {
  COMMPOOL_TRY(CheckRoom(device.driver(), trace));
  COMMPOOL_TRY(device.NeedStreams(2 * trace.streams));
  std::unique_ptr<TraceWork> work = COMMPOOL_TRY(Player::MakeWork(device, trace, 0));
  std::unique_ptr<TraceWork> others_work = COMMPOOL_TRY(Player::MakeWork(device, trace, trace.streams));
  Player in_pool(device, trace, pool, std::move(work), 0);
  Player in_other(device, trace, other, std::move(others_work), trace.streams);
  const OnOneCore on_one_core;  // their threads for rescue run on other cores
  return Alternation(trace, in_pool, in_other).Run(seconds);
}

nlohmann::json ToJson(const AlternationRow& row) {
  nlohmann::json json = {{"name", row.name}, {"events", row.events}};
  if (!row.failed.empty()) return json["failed"] = row.failed, json;
  const AlternationMeasures& measures = row.measures;
  json["rounds"] = measures.ratios.size();
  json["pool_long_us"] = measures.pool_long_us;
  json["other_long_us"] = measures.other_long_us;
  if (measures.ratios.empty()) return json;
  const Spread ratio = SpreadOf(measures.ratios);
  const Spread wall = SpreadOf(measures.wall_ratios);
  json["pool_ns"] = Median(measures.pool_ns);
  json["other_ns"] = Median(measures.other_ns);
  json["ratio"] = ratio.median;
  json["interval"] = {ratio.low, ratio.high};
  json["outcome"] = NameOf(OutcomeOf(ratio));
  json["wall_ratio"] = wall.median;
  json["wall_interval"] = {wall.low, wall.high};
  return json;
}

void PrintTable(const std::vector<AlternationRow>& rows) {
  std::printf("%-18s %8s %7s %8s %8s %20s %9s %20s %10s %10s\n", "trace", "events", "rounds", "pool ns", "other ns",
              "ratio", "outcome", "wall ratio", "pool long", "other long");
  for (const AlternationRow& row : rows) {
    const AlternationMeasures& measures = row.measures;
    if (!row.failed.empty() || measures.ratios.empty()) {
      std::printf("%-18s %8zu %s\n", row.name.c_str(), row.events,
                  row.failed.empty() ? "every call was long" : row.failed.c_str());
      continue;
    }
    const Spread ratio = SpreadOf(measures.ratios);
    const Spread wall = SpreadOf(measures.wall_ratios);
    std::printf("%-18s %8zu %7zu %8.1f %8.1f %6.3f %6.3f %6.3f %9s %6.3f %6.3f %6.3f %10.0f %10.0f\n", row.name.c_str(),
                row.events, measures.ratios.size(), Median(measures.pool_ns), Median(measures.other_ns), ratio.median,
                ratio.low, ratio.high, NameOf(OutcomeOf(ratio)), wall.median, wall.low, wall.high,
                measures.pool_long_us, measures.other_long_us);
  }
}

}  // namespace commpool::cli
