#include "src/report/clocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

using Key = std::pair<uint64_t, uint64_t>;  // home and number of an agreement

Key KeyOf(const Meeting& meeting) { return {meeting.home, meeting.number}; }

// Added to the rank's times it gives those of `other`; nothing where they never met.
std::optional<int64_t> OffsetBetween(const RankModel& rank, const RankModel& other) {
  std::vector<int64_t> offsets;
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
  auto its = other.meetings.begin();
  for (const Meeting& own : rank.meetings) {
    while (its != other.meetings.end() && KeyOf(*its) < KeyOf(own)) ++its;
    if (its == other.meetings.end()) break;
    if (KeyOf(*its) != KeyOf(own) || own.to == kUnknown || its->to == kUnknown) continue;
    offsets.push_back(its->to - own.to);
    least = std::max(least, its->from - own.to);
    most = std::min(most, its->to - own.from);
  }
  if (offsets.empty()) return std::nullopt;
  const auto middle = offsets.begin() + static_cast<std::ptrdiff_t>(offsets.size() / 2);
  std::nth_element(offsets.begin(), middle, offsets.end());
  return least <= most ? std::clamp(*middle, least, most) : *middle;
}

// Processes of one start of a host have one steady clock.
bool ShareClock(const RankModel& one, const RankModel& other) {
  return !one.facts.boot.empty() && one.facts.boot == other.facts.boot;
}

int64_t WallClock(const RankModel& rank) {
  return static_cast<int64_t>(rank.facts.wall_clock) - static_cast<int64_t>(rank.facts.steady_clock);
}

// The ranks that came to one agreement, in the time of all.
struct Arrivals {
  int64_t last_rank = -1;
  int64_t last = INT64_MIN;
  int64_t before = INT64_MIN;  // the one before the last
  size_t count = 0;

  void Count(int64_t rank, int64_t time) {
    ++count;
    if (time > last) {
      before = std::exchange(last, time);
      last_rank = rank;
    } else {
      before = std::max(before, time);
    }
  }
};

class Latecomers {
 public:
  explicit Latecomers(const ReportModel& report) : without_recording_(&report.without_recording) {
    for (const RankModel& rank : report.ranks) {
      for (const auto& [home, number] : rank.last_agreements) last_[home][rank.rank] = number;
      for (const Meeting& meeting : rank.meetings) {
        arrivals_[KeyOf(meeting)].Count(rank.rank, meeting.from + rank.offset);
      }
    }
  }

  void Mark(EventModel& event) const {
    const auto ranks = last_.find(event.home);
    if (event.kind != EventKind::kAgreement || ranks == last_.end()) return;
    if (event.outcome == Outcome::kFailed || event.to == kUnknown) {
      const std::vector<int64_t> absent = Absent(ranks->second, event.number);
      if (absent.size() == 1) event.waited_for = absent.front();
      if (!absent.empty()) event.text += "; " + RanksInWords(absent) + " did not come";
      // Who came last among the others is not to blame.
      if (!absent.empty()) return;
      if (!without_recording_->empty()) {
        event.text += "; " + RanksInWords(*without_recording_) + " left no recording and may not have come";
        return;
      }
    }
    MarkLast(event, ranks->second.size());
  }

 private:
  using Ranks = std::map<int64_t, uint64_t>;  // each one's last agreement

  // The ranks that have not come so far.
  static std::vector<int64_t> Absent(const Ranks& ranks, uint64_t number) {
    std::vector<int64_t> absent;
    for (const auto& [rank, last] : ranks) {
      if (last < number) absent.push_back(rank);
    }
    return absent;
  }

  // A rank whose arrival is not known may have come after the last one that is.
  void MarkLast(EventModel& event, size_t ranks) const {
    const auto found = arrivals_.find({event.home, event.number});
    if (found == arrivals_.end() || ranks < 2 || found->second.count < ranks) return;
    const Arrivals& arrivals = found->second;
    event.waited_for = arrivals.last_rank;
    event.text += "; rank " + std::to_string(arrivals.last_rank) + " came last, " +
                  InWords(arrivals.last - arrivals.before) + " after the others";
  }

  const std::vector<int64_t>* without_recording_;
  std::map<Key, Arrivals> arrivals_;
  std::map<uint64_t, Ranks> last_;  // by home
};

}  // namespace

void AlignClocks(ReportModel& report) {
  if (report.ranks.empty()) return;
  for (RankModel& rank : report.ranks) {
    std::sort(rank.meetings.begin(), rank.meetings.end(),
              [](const Meeting& a, const Meeting& b) { return KeyOf(a) < KeyOf(b); });
  }
  std::vector<size_t> aligned;
  std::set<size_t> others;
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) others.insert(rank);
  // With all ranks whose clock is the same one.
  const auto align = [&](size_t rank, int64_t offset) {
    std::erase_if(others, [&](size_t other) {
      if (other != rank && !ShareClock(report.ranks[other], report.ranks[rank])) return false;
      report.ranks[other].offset = offset;
      aligned.push_back(other);
      return true;
    });
  };
  align(0, 0);
  for (size_t next = 0; next < aligned.size(); ++next) {
    for (size_t other = 0; other < report.ranks.size(); ++other) {
      if (!others.contains(other)) continue;
      const RankModel& known = report.ranks[aligned[next]];
      const std::optional<int64_t> offset = OffsetBetween(report.ranks[other], known);
      if (offset) align(other, known.offset + *offset);
    }
  }
  std::vector<int64_t> by_wall_clock;
  for (const size_t other : others) by_wall_clock.push_back(report.ranks[other].rank);
  while (!others.empty()) {
    const size_t other = *others.begin();
    align(other, WallClock(report.ranks[other]) - WallClock(report.ranks[0]));
  }
  if (by_wall_clock.empty()) return;
  report.notes.push_back("no agreement shows how the clocks of rank " + std::to_string(report.ranks[0].rank) + " and " +
                         RanksInWords(by_wall_clock) + " differ: the wall clocks of their hosts align them");
}

void FindLatecomers(ReportModel& report) {
  const Latecomers latecomers(report);
  for (RankModel& rank : report.ranks) {
    for (EventModel& event : rank.events) latecomers.Mark(event);
  }
}

}  // namespace commpool::internal::report
