#include "src/report/findings.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

constexpr size_t kLeastRanks = 3;  // of two ranks neither is the odd one
constexpr uint64_t kLeastBytes = 1 << 20;
constexpr uint64_t kMuchMore = 2;
constexpr size_t kMostFindings = 8;

// A pool on one rank.
struct Held {
  uint32_t rank = 0;
  uint32_t pool = 0;
  uint64_t most = 0;  // allocated
  int64_t time = kUnknown;
  bool grows = false;
};

struct RanOut {
  std::vector<int64_t> ranks;
  FindingModel first;
  int64_t moment = INT64_MAX;  // on the clock of all
};

int64_t Zero(const ReportModel& report) {
  int64_t zero = INT64_MAX;
  for (const RankModel& rank : report.ranks) zero = std::min(zero, rank.begin + rank.offset);
  return zero;
}

// By pool: when a rank first found no memory.
void AddRanOut(const ReportModel& report, std::vector<FindingModel>& findings) {
  std::map<std::string, RanOut> by_pool;
  for (uint32_t index = 0; index < report.ranks.size(); ++index) {
    const RankModel& rank = report.ranks[index];
    for (const EventModel& event : rank.events) {
      if (event.kind != EventKind::kSearch || event.outcome != Outcome::kFailed || event.pool == kNone) continue;
      RanOut& out = by_pool[report.texts[rank.pools[event.pool].name]];
      if (out.ranks.empty() || out.ranks.back() != rank.rank) out.ranks.push_back(rank.rank);
      if (event.from + rank.offset >= out.moment) continue;
      out.moment = event.from + rank.offset;
      out.first = {.rank = index, .pool = event.pool, .time = event.from};
    }
  }
  for (auto& [pool, out] : by_pool) {
    out.first.text =
        RanksInWords(out.ranks) + " ran out of memory in " + pool + " at " + InWords(out.moment - Zero(report));
    findings.push_back(std::move(out.first));
  }
}

Held HeldBy(const ReportModel& report, uint32_t index, uint32_t number) {
  const RankModel& rank = report.ranks[index];
  Held held{.rank = index, .pool = number};
  const int64_t quarter = (rank.end - rank.begin) / 4;
  uint64_t of_first_half = 0;
  for (const BytePoint& point : rank.pools[number].bytes.Points()) {
    if (point.allocated > held.most) {
      held.most = point.allocated;
      held.time = point.time;
    }
    if (point.time <= rank.end - 2 * quarter) of_first_half = held.most;
  }
  held.grows = held.time >= rank.end - quarter && of_first_half < held.most - held.most / 4;
  return held;
}

std::string Compared(const ReportModel& report, const Held& held, uint64_t median, const std::string& pool) {
  const std::string rank = "rank " + std::to_string(report.ranks[held.rank].rank) + " holds ";
  const std::string what =
      median == 0 ? FormatBytes(held.most) + " of " + pool + ", and most ranks none"
                  : InThousands((held.most + median / 2) / median) + " times more of " + pool + " than the median";
  return rank + what + (held.grows ? ", and it grows" : "");
}

// Of each pool's name the rank that holds most, where that is far more than the median.
void AddUneven(const ReportModel& report, std::vector<FindingModel>& findings) {
  std::map<std::string, std::vector<Held>> by_name;
  for (uint32_t index = 0; index < report.ranks.size(); ++index) {
    for (uint32_t number = 0; number < report.ranks[index].pools.size(); ++number) {
      by_name[report.texts[report.ranks[index].pools[number].name]].push_back(HeldBy(report, index, number));
    }
  }
  const auto less = [](const Held& a, const Held& b) { return a.most < b.most; };
  for (auto& [name, all] : by_name) {
    if (all.size() < kLeastRanks) continue;
    std::sort(all.begin(), all.end(), less);
    const uint64_t median = all[(all.size() - 1) / 2].most;
    const Held& most = all.back();
    if (most.most < median + kLeastBytes || most.most / kMuchMore < median) continue;
    findings.push_back({Compared(report, most, median, name), most.rank, most.pool, most.time});
  }
}

}  // namespace

std::vector<FindingModel> FindTrouble(const ReportModel& report) {
  std::vector<FindingModel> findings;
  AddRanOut(report, findings);
  AddUneven(report, findings);
  if (findings.size() > kMostFindings) findings.resize(kMostFindings);
  return findings;
}

std::optional<std::string> DescribeDifference(const ReportModel& report) {
  if (!report.difference) return std::nullopt;
  std::vector<int64_t> ranks;
  std::string calls;
  for (const DifferingCall& call : report.difference->ranks) {
    if (calls.find(call.text) != std::string::npos) continue;  // as a rank named before
    ranks.push_back(call.rank);
    calls += (calls.empty() ? "" : " / ") + call.text;
  }
  return RanksInWords(ranks) + " differ from call " + InThousands(report.difference->call) + " of " +
         report.difference->pool + " on: " + calls;
}

std::vector<std::string> DescribeBudgets(const ReportModel& report) {
  std::map<std::string, std::pair<BudgetModel, int64_t>> most;
  for (const RankModel& rank : report.ranks) {
    for (const BudgetModel& budget : rank.budgets) {
      auto& [model, of] = most[report.texts[budget.name]];
      if (model.name != kNoText && model.peak >= budget.peak) continue;
      model = budget;
      of = rank.rank;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [name, used] : most) {
    const auto& [model, rank] = used;
    const std::string of = model.limit == kUnlimited ? "" : " of " + FormatBytes(model.limit);
    texts.push_back("budget " + name + ": " + FormatBytes(model.peak) + of + " at most, on device " +
                    std::to_string(model.device) + " of rank " + std::to_string(rank));
  }
  return texts;
}

}  // namespace commpool::internal::report
