#include "src/report/model_json.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/report/json_writer.h"
#include "src/report/pool_json.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

// In the order of EventKind.
constexpr std::array<std::string_view, 9> kEventKinds = {"agreement", "sleep",  "wake",         "capture",   "scope",
                                                         "search",    "growth", "registration", "difference"};

void WriteNotes(JsonWriter& json, const std::vector<std::string>& notes) {
  json.Key("notes");
  json.BeginArray();
  for (const std::string& note : notes) json.Text(note);
  json.EndArray();
}

void WriteEvents(JsonWriter& json, const std::vector<EventModel>& events, const RankTimes& times) {
  json.Key("events");
  json.BeginObject();
  WriteColumn(json, "kind", events,
              [&](const EventModel& event) { json.Text(kEventKinds[static_cast<size_t>(event.kind)]); });
  WriteColumn(json, "pool", events, [&](const EventModel& event) { json.Number(IndexOrNone(event.pool)); });
  WriteColumn(json, "from", events, [&](const EventModel& event) { json.Number(times.Of(event.from)); });
  WriteColumn(json, "to", events, [&](const EventModel& event) { json.Number(times.Of(event.to)); });
  WriteColumn(json, "text", events, [&](const EventModel& event) { json.Text(event.text); });
  WriteColumn(json, "waited_for", events, [&](const EventModel& event) { json.Number(event.waited_for); });
  WriteColumn(json, "failed", events,
              [&](const EventModel& event) { json.Number(event.outcome == Outcome::kFailed ? 1 : 0); });
  json.EndObject();
}

void WritePeak(JsonWriter& json, const PeakModel& peak, const RankTimes& times) {
  json.Key("peak");
  json.BeginObject();
  json.Key("time");
  json.Number(times.Of(peak.time));
  json.Key("bytes");
  json.Number(peak.bytes);
  json.Key("holders");
  json.BeginArray();
  for (const HolderModel& holder : peak.holders) {
    json.BeginObject();
    json.Key("pool");
    json.Number(IndexOrNone(holder.pool));
    json.Key("bytes");
    json.Number(holder.bytes);
    json.Key("blocks");
    json.Number(holder.blocks);
    json.Key("stack");
    json.Number(IndexOrNone(holder.stack));
    json.Key("what");
    json.Text(holder.what);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void WriteBudgets(JsonWriter& json, const std::vector<BudgetModel>& budgets, const Texts& texts) {
  json.Key("budgets");
  json.BeginObject();
  WriteColumn(json, "name", budgets, [&](const BudgetModel& budget) { json.Text(texts[budget.name]); });
  WriteColumn(json, "device", budgets, [&](const BudgetModel& budget) { json.Number(budget.device); });
  WriteColumn(json, "bytes", budgets, [&](const BudgetModel& budget) { json.Number(budget.bytes); });
  WriteColumn(json, "peak", budgets, [&](const BudgetModel& budget) { json.Number(budget.peak); });
  WriteColumn(json, "limit", budgets, [&](const BudgetModel& budget) {
    if (budget.limit == kUnlimited) return json.Null();
    json.Number(budget.limit);
  });
  json.EndObject();
}

void WriteRank(JsonWriter& json, const RankModel& rank, const RankTimes& times, const Texts& texts) {
  json.BeginObject();
  json.Key("rank");
  json.Number(rank.rank);
  json.Key("host");
  json.Text(rank.facts.host);
  json.Key("pid");
  json.Number(rank.facts.process);
  json.Key("program");
  json.Text(rank.facts.program);
  WriteNotes(json, rank.notes);
  json.Key("begin");
  json.Number(times.Of(rank.begin));
  json.Key("pools");
  json.BeginArray();
  for (const PoolModel& pool : rank.pools) WritePool(json, pool, times, texts);
  json.EndArray();
  WriteBudgets(json, rank.budgets, texts);
  WriteEvents(json, rank.events, times);
  WritePeak(json, rank.peak, times);
  json.EndObject();
}

void WriteDifference(JsonWriter& json, const ReportModel& report, int64_t zero) {
  json.Key("difference");
  if (!report.difference) return json.Null();
  json.BeginObject();
  json.Key("pool");
  json.Text(report.difference->pool);
  json.Key("call");
  json.Number(report.difference->call);
  json.Key("ranks");
  json.BeginArray();
  for (const DifferingCall& call : report.difference->ranks) {
    const auto rank = std::find_if(report.ranks.begin(), report.ranks.end(),
                                   [&](const RankModel& candidate) { return candidate.rank == call.rank; });
    json.BeginObject();
    json.Key("rank");
    json.Number(call.rank);
    json.Key("time");
    json.Number(RankTimes(zero, rank == report.ranks.end() ? 0 : rank->offset).Of(call.time));
    json.Key("text");
    json.Text(call.text);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void WriteFindings(JsonWriter& json, const ReportModel& report, int64_t zero) {
  json.Key("findings");
  json.BeginArray();
  for (const FindingModel& finding : report.findings) {
    json.BeginObject();
    json.Key("text");
    json.Text(finding.text);
    json.Key("rank");
    json.Number(finding.rank);
    json.Key("pool");
    json.Number(finding.pool);
    json.Key("time");
    json.Number(RankTimes(zero, report.ranks[finding.rank].offset).Of(finding.time));
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

void WriteModel(std::ostream& out, const ReportModel& report) {
  int64_t zero = INT64_MAX;
  int64_t end = INT64_MIN;
  for (const RankModel& rank : report.ranks) {
    zero = std::min(zero, rank.begin + rank.offset);
    end = std::max(end, rank.end + rank.offset);
  }
  JsonWriter json(out);
  json.BeginObject();
  json.Key("version");
  json.Number(1);
  json.Key("title");
  json.Text(report.title);
  WriteNotes(json, report.notes);
  json.Key("end");
  json.Number(report.ranks.empty() ? 0 : end - zero);
  json.Key("texts");
  json.BeginArray();
  for (uint32_t text = 0; text < report.texts.size(); ++text) json.Text(report.texts[text]);
  json.EndArray();
  json.Key("ranks");
  json.BeginArray();
  for (const RankModel& rank : report.ranks) WriteRank(json, rank, RankTimes(zero, rank.offset), report.texts);
  json.EndArray();
  WriteDifference(json, report, zero);
  WriteFindings(json, report, zero);
  json.EndObject();
}

}  // namespace commpool::internal::report
