#include "tools/cli/bench/hot_report.h"

#include <cstdio>
#include <functional>

#include "src/library/base/bytes.h"
#include "tools/cli/median.h"

namespace commpool::cli {

namespace {

using Row = std::map<uint64_t, std::vector<double>>;
using Join = std::function<double(double, double)>;

constexpr const char* kOurs = "commpool";

// The spread of two rows' ratios, round by round.
Spread SpreadOfRounds(const std::vector<double>& ours, const std::vector<double>& others, const Join& join) {
  std::vector<double> joined;
  for (size_t round = 0; round < ours.size(); ++round) joined.push_back(join(ours[round], others[round]));
  return SpreadOf(std::move(joined));
}

double Ratio(double ours, double other) { return ours / other; }
double Difference(double more, double fewer) { return more - fewer; }

std::map<uint64_t, Spread> Beside(const Samples& samples, const std::string& other) {
  std::map<uint64_t, Spread> spreads;
  if (samples.empty()) return spreads;
  for (const auto& [key, ours] : samples.at(kOurs)) {
    spreads[key] = SpreadOfRounds(ours, samples.at(other).at(key), Ratio);
  }
  return spreads;
}

// Our time at each size, relative to mimalloc's at the smallest.
std::map<uint64_t, Spread> BesideSmallest(const Samples& pairs) {
  std::map<uint64_t, Spread> spreads;
  const std::vector<double>& smallest = pairs.at("mimalloc").begin()->second;
  for (const auto& [bytes, ours] : pairs.at(kOurs)) spreads[bytes] = SpreadOfRounds(ours, smallest, Ratio);
  return spreads;
}

// What each number of live blocks adds to the time of the next smaller number.
std::map<uint64_t, Spread> Added(const Row& live) {
  std::map<uint64_t, Spread> spreads;
  for (auto more = live.begin(); more != live.end(); ++more) {
    if (more == live.begin()) continue;
    spreads[more->first] = SpreadOfRounds(more->second, std::prev(more)->second, Difference);
  }
  return spreads;
}

nlohmann::json ToJson(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

nlohmann::json ToJson(const std::map<uint64_t, Spread>& spreads) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [key, spread] : spreads) json[std::to_string(key)] = ToJson(spread);
  return json;
}

nlohmann::json MediansOf(const Samples& samples, const std::string& contestant) {
  nlohmann::json json = nlohmann::json::object();
  const auto row = samples.find(contestant);
  if (row == samples.end()) return json;
  for (const auto& [key, values] : row->second) json[std::to_string(key)] = Median(values);
  return json;
}

using Name = std::string (*)(uint64_t);

void PrintMedians(const Findings& findings, const Samples& samples, double unit, Name name) {
  if (samples.empty()) return;
  for (const auto& [key, unused] : samples.begin()->second) {
    std::printf("%-16s", name(key).c_str());
    for (const Contestant& contestant : findings.contestants) {
      std::printf(" %16.2f", Median(samples.at(contestant.key).at(key)) / unit);
    }
    std::printf("\n");
  }
}

void PrintSpreads(const std::map<uint64_t, Spread>& spreads, Name name) {
  for (const auto& [key, spread] : spreads) {
    std::printf("%-16s %16.2f   %.2f to %.2f\n", name(key).c_str(), spread.median, spread.low, spread.high);
  }
}

std::string LiveName(uint64_t count) { return std::to_string(count) + " live"; }
std::string StreamsName(uint64_t count) { return count == 1 ? "1 stream" : std::to_string(count) + " streams"; }
std::string ThreadsName(uint64_t count) { return std::to_string(count) + " threads"; }

void PrintRoutes(const Findings& findings, const std::string& bytes) {
  if (findings.routes.empty()) return;
  std::printf("# through scopes, %s\n%-16s %16s %16s %16s %16s\n", bytes.c_str(), "route", "ns a pair", "by name",
              "begin and end", "added");
  for (const auto& [name, route] : findings.routes) {
    std::printf("%-16s %16.2f %16.2f %16.2f %16.2f   %.2f to %.2f\n", name.c_str(), route.pair_ns, route.by_name_ns,
                route.scope_ns, route.added_ns.median, route.added_ns.low, route.added_ns.high);
  }
}

}  // namespace

nlohmann::json ToJson(const Findings& findings, const std::string& driver) {
  nlohmann::json json = {{"driver", driver},
                         {"rounds", findings.rounds},
                         {"mimalloc_pair_ns", Median(findings.pairs.at("mimalloc").begin()->second)}};
  for (const Contestant& contestant : findings.contestants) {
    nlohmann::json& place = contestant.key == kOurs ? json : json[contestant.key];
    place["pair_ns"] = MediansOf(findings.pairs, contestant.key);
    place["live"] = MediansOf(findings.live, contestant.key);
    place["threads"] = MediansOf(findings.threads, contestant.key);
    place["mix"] = MediansOf(findings.mix, contestant.key);
    if (contestant.key == kOurs) continue;
    json["ratio_to"][contestant.key] = {{"pair_ns", ToJson(Beside(findings.pairs, contestant.key))},
                                        {"live", ToJson(Beside(findings.live, contestant.key))},
                                        {"threads", ToJson(Beside(findings.threads, contestant.key))},
                                        {"mix", ToJson(Beside(findings.mix, contestant.key))}};
  }
  json["ratio_to_mimalloc_pair"] = ToJson(BesideSmallest(findings.pairs));
  json["live_added_ns"] = findings.live.empty() ? nlohmann::json::object() : ToJson(Added(findings.live.at(kOurs)));
  for (const auto& [name, route] : findings.routes) {
    json["routes"][name] = {{"pair_ns", route.pair_ns},
                            {"by_name_ns", route.by_name_ns},
                            {"added_ns", route.added_ns.median},
                            {"added_spread_ns", ToJson(route.added_ns)},
                            {"scope_ns", route.scope_ns}};
  }
  return json;
}

void Print(const Findings& findings, const TableTitles& titles) {
  std::printf("# %s\n# cached allocation and free, medians of %d rounds\n%-16s", titles.driver.c_str(), findings.rounds,
              "ns a pair");
  for (const Contestant& contestant : findings.contestants) std::printf(" %16s", contestant.title.c_str());
  std::printf("\n");
  PrintMedians(findings, findings.pairs, 1, internal::FormatBytes);
  std::printf("# live blocks of %s, replaced in a random order\n", titles.live_bytes.c_str());
  PrintMedians(findings, findings.live, 1, LiveName);
  std::printf("# million pairs a second, threads with streams of their own\n");
  PrintMedians(findings, findings.threads, 1e6, ThreadsName);
  std::printf("# mix: ns to replace one of 32 blocks of 1 MiB to 1 GiB\n");
  PrintMedians(findings, findings.mix, 1, StreamsName);
  for (const Contestant& contestant : findings.contestants) {
    if (contestant.key == kOurs) continue;
    std::printf("# mix, of that of %s\n", contestant.title.c_str());
    PrintSpreads(Beside(findings.mix, contestant.key), StreamsName);
  }
  std::printf("# of mimalloc's: the rounds' ratios, median and where it lies at 95 %%\n");
  PrintSpreads(Beside(findings.pairs, "mimalloc"), internal::FormatBytes);
  PrintSpreads(Beside(findings.threads, "mimalloc"), ThreadsName);
  std::printf("# of mimalloc's pair of %s, likewise\n",
              internal::FormatBytes(findings.pairs.at("mimalloc").begin()->first).c_str());
  PrintSpreads(BesideSmallest(findings.pairs), internal::FormatBytes);
  std::printf("# ns that more live blocks add to the line before\n");
  if (!findings.live.empty()) PrintSpreads(Added(findings.live.at(kOurs)), LiveName);
  PrintRoutes(findings, titles.routed_bytes);
}

}  // namespace commpool::cli
