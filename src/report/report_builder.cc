#include "src/report/report_builder.h"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/report/call_comparison.h"
#include "src/report/clocks.h"
#include "src/report/findings.h"
#include "src/report/rank_replay.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

using Differences = std::map<Channel, DifferenceModel>;

// As placeOf of the page (format.js): the nearest line of the program's own code, with the file and its folder.
std::string PlaceOf(const std::string& stack) {
  static const std::regex of_others(
      "/(site|dist)-packages/|/lib(64)?/python3|/commpool/(torch/)?\\w+\\.py:|"
      "/torch/(_\\w+|nn|autograd|optim|distributed|utils|cuda|fx|functional)[/.]");
  std::istringstream lines(stack);
  std::string place;
  for (std::string line; std::getline(lines, line);) {
    if (place.empty()) place = line;
    if (std::regex_search(line, of_others)) continue;
    place = line;
    break;
  }
  const size_t file = place.rfind('/');
  const size_t folder = file == std::string::npos || file == 0 ? file : place.rfind('/', file - 1);
  return folder == std::string::npos || folder == 0 ? place : "..." + place.substr(folder);
}

class Builder {
 public:
  Builder(const Recordings& recordings, const Limits& limits)
      : recordings_(&recordings), limits_(limits), kept_(report_, limits) {}

  ReportModel Build() {
    report_.notes = recordings_->notes;
    report_.without_recording = recordings_->missing;
    report_.ranks.resize(recordings_->readers.size());
    for (uint32_t rank = 0; rank < report_.ranks.size(); ++rank) Replay(rank);
    FindDifferences();
    kept_.PutIntoReport();
    AlignClocks(report_);
    FindLatecomers(report_);
    ChooseDifference();
    report_.findings = FindTrouble(report_);
    ThinOut();
    NoteLeftOut();
    return std::move(report_);
  }

 private:
  void Replay(uint32_t index) {
    const RecordingReader& reader = recordings_->readers[index];
    RankModel& rank = report_.ranks[index];
    rank.rank = recordings_->ranks[index];
    rank.file = reader.path();
    rank.facts = reader.facts();
    rank.notes = reader.notes();
    rank.begin = reader.begin();
    RankReplay replay(report_, index, kept_, calls_);
    const uint64_t strange = reader.Read(replay);
    replay.Finish();
    last_calls_.push_back(std::move(replay.last_calls()));
    if (strange > 0) rank.notes.push_back(Counted(strange, "page") + " of the recording cannot be understood");
    if (report_.title.empty()) report_.title = rank.facts.program;
  }

  // How the ranks made the first call that differs.
  void FindDifferences() {
    for (size_t index = 0; index < last_calls_.size(); ++index) {
      for (const auto& [channel, last] : last_calls_[index]) {
        const auto made =
            std::find_if(last.calls.rbegin(), last.calls.rend(), [&, &channel = channel](const LastCalls::Made& call) {
              return calls_.FirstDifference(channel) == call.number;
            });
        if (made == last.calls.rend()) continue;
        DifferenceModel& difference = differences_[channel];
        difference.call = made->number;
        difference.pool = report_.texts[last.pool];
        std::string call = DescribeCall(report_.texts[made->text], made->value);
        const std::string& stack = report_.texts[made->stack];
        if (!stack.empty()) call += " at " + PlaceOf(stack);
        difference.ranks.push_back({report_.ranks[index].rank, made->time, std::move(call)});
      }
    }
  }

  const RankModel& RankOf(int64_t number) const {
    return *std::find_if(report_.ranks.begin(), report_.ranks.end(),
                         [&](const RankModel& rank) { return rank.rank == number; });
  }
  int64_t TimeOfAll(const DifferenceModel& difference) const {
    int64_t first = INT64_MAX;
    for (const DifferingCall& call : difference.ranks) {
      first = std::min(first, call.time + RankOf(call.rank).offset);
    }
    return first;
  }

  // That of the pool whose ranks parted first.
  void ChooseDifference() {
    int64_t first = INT64_MAX;
    for (auto& [channel, difference] : differences_) {
      MarkDifference(channel, difference);
      const int64_t time = TimeOfAll(difference);
      if (report_.difference && time >= first) continue;
      first = time;
      report_.difference = difference;
    }
  }

  void MarkDifference(Channel channel, const DifferenceModel& difference) {
    for (const DifferingCall& call : difference.ranks) {
      RankModel& rank = report_.ranks[static_cast<size_t>(&RankOf(call.rank) - report_.ranks.data())];
      const auto pool = std::find_if(rank.pools.begin(), rank.pools.end(), [&](const PoolModel& candidate) {
        return Channel(candidate.home, candidate.channel) == channel;
      });
      EventModel event{.kind = EventKind::kDifference, .from = call.time, .to = call.time};
      if (pool != rank.pools.end()) event.pool = static_cast<uint32_t>(pool - rank.pools.begin());
      event.text = "call " + std::to_string(difference.call) + " differs between ranks: " + call.text;
      const auto later = [](const EventModel& a, const EventModel& b) { return a.from < b.from; };
      rank.events.insert(std::upper_bound(rank.events.begin(), rank.events.end(), event, later), event);
    }
  }

  void ThinOut() {
    size_t pools = 1;
    for (const RankModel& rank : report_.ranks) pools += rank.pools.size();
    for (RankModel& rank : report_.ranks) {
      for (PoolModel& pool : rank.pools) {
        pool.bytes.Thin(std::max<size_t>(limits_.series_buckets / pools, 8));
        pool.small.Thin(std::max<size_t>(limits_.small_slices / pools, 8));
      }
    }
  }

  void NoteLeftOut() {
    LeftOut left_out;
    for (RankModel& rank : report_.ranks) {
      for (const PoolModel& pool : rank.pools) {
        left_out.blocks += pool.left_out.blocks;
        left_out.bytes += pool.left_out.bytes;
      }
      if (rank.events_left_out == 0) continue;
      rank.notes.push_back(Counted(rank.events_left_out, "event") + " " + Are(rank.events_left_out) +
                           " not shown: the shortest ones");
    }
    if (left_out.blocks == 0) return;
    report_.notes.push_back(Counted(left_out.blocks, "block") + " " + Are(left_out.blocks) +
                            " not drawn one by one: the smallest by bytes and time");
  }

  const Recordings* recordings_;
  Limits limits_;
  ReportModel report_;
  Kept kept_;
  CallComparison calls_;
  std::vector<std::map<Channel, LastCalls>> last_calls_;  // by rank
  Differences differences_;
};

}  // namespace

ReportModel BuildReport(const Recordings& recordings, const Limits& limits) {
  return Builder(recordings, limits).Build();
}

}  // namespace commpool::internal::report
