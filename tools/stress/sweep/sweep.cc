#include "tools/stress/sweep/sweep.h"

#include <algorithm>
#include <cstdio>

#include "src/engine/expandable_engine.h"
#include "tools/stress/sweep/modelled_pool.h"

namespace commpool::cli {

namespace engine = internal::engine;
using engine::Slack;

namespace {

struct Constant {
  const char* name;
  uint64_t Slack::*share;
};

constexpr Constant kConstants[] = {{"move_share", &Slack::move_share},
                                   {"steady_move_share", &Slack::steady_move_share},
                                   {"splinter_share", &Slack::splinter_share},
                                   {"wait_share", &Slack::wait_share},
                                   {"host_wait_share", &Slack::host_wait_share},
                                   {"small_page_share", &Slack::small_page_share},
                                   {"page_share", &Slack::page_share}};
constexpr uint64_t kShares[] = {20, 40, 100, 250, 1000};
constexpr double kScales[] = {0.93, 1, 1.31};

std::vector<SweepSetting> Settings() {
  std::vector<SweepSetting> settings = {{"shipped", 0, Slack()}};
  for (const Constant& constant : kConstants) {
    for (const uint64_t share : kShares) {
      SweepSetting setting{constant.name, share, Slack()};
      if (setting.slack.*constant.share == share) continue;
      setting.slack.*constant.share = share;
      settings.push_back(std::move(setting));
    }
  }
  return settings;
}

double CostOf(const std::vector<SweepMeasures>& scales) {
  double cost = 0;
  for (const SweepMeasures& measures : scales) cost += measures.cost();
  return cost;
}

// The setting that costs least on all traces but one.
size_t ChooseWithout(const Sweep& sweep, const SweepTrace& left_out) {
  std::vector<double> costs(sweep.settings.size(), 0);
  for (const SweepTrace& trace : sweep.traces) {
    if (&trace == &left_out) continue;
    for (size_t setting = 0; setting < costs.size(); ++setting) costs[setting] += CostOf(trace.measures[setting]);
  }
  return static_cast<size_t>(std::min_element(costs.begin(), costs.end()) - costs.begin());
}

// Sums and extremes over traces and scales.
struct Summary {
  double mean_use = 0;
  double least_use = 1;
  double longer = 0;  // the mean share beyond the ideal critical path
  double cost = 0;
  uint64_t events = 0, driver_calls = 0, memory_calls = 0, steady_memory_calls = 0, host_waits = 0, device_waits = 0;
  double driver_us = 0;
  size_t count = 0;

  void Add(const SweepMeasures& measures) {
    mean_use += (measures.utilisation() - mean_use) / static_cast<double>(++count);
    longer += (measures.critical_us / measures.ideal_us - 1 - longer) / static_cast<double>(count);
    cost += (measures.cost() - cost) / static_cast<double>(count);
    least_use = std::min(least_use, measures.utilisation());
    events += measures.events;
    driver_calls += measures.driver_calls;
    memory_calls += measures.memory_calls;
    steady_memory_calls += measures.steady_memory_calls;
    host_waits += measures.host_waits;
    device_waits += measures.device_waits;
    driver_us += measures.driver_us;
  }
  double PerThousand(uint64_t what) const { return 1000 * static_cast<double>(what) / static_cast<double>(events); }
};

Summary Summarise(const std::vector<SweepMeasures>& scales) {
  Summary summary;
  for (const SweepMeasures& measures : scales) summary.Add(measures);
  return summary;
}

Summary SummariseSetting(const Sweep& sweep, size_t setting) {
  Summary summary;
  for (const SweepTrace& trace : sweep.traces) {
    for (const SweepMeasures& measures : trace.measures[setting]) summary.Add(measures);
  }
  return summary;
}

std::string NameOf(const SweepSetting& setting) {
  return setting.share == 0 ? setting.constant : setting.constant + " 1/" + std::to_string(setting.share);
}

nlohmann::json ToJson(const Summary& summary) {
  return {{"mean_utilisation", summary.mean_use},
          {"least_utilisation", summary.least_use},
          {"critical_path_longer", summary.longer},
          {"cost", summary.cost},
          {"driver_calls", summary.driver_calls},
          {"memory_calls", summary.memory_calls},
          {"steady_memory_calls", summary.steady_memory_calls},
          {"driver_us", summary.driver_us},
          {"host_waits", summary.host_waits},
          {"device_waits", summary.device_waits},
          {"events", summary.events}};
}

void PrintLine(const std::string& name, const Summary& summary) {
  const auto count = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%-24s %6.2f %6.2f %10llu %10llu %10llu %10.1f %8.2f %8.2f %9.2f %6.2f\n", name.c_str(),
              100 * summary.mean_use, 100 * summary.least_use, count(summary.driver_calls), count(summary.memory_calls),
              count(summary.steady_memory_calls), summary.driver_us / 1000, summary.PerThousand(summary.host_waits),
              summary.PerThousand(summary.device_waits), 100 * summary.longer, summary.cost);
}

// Replays allocations and frees, with a pool or without one.
SweepMeasures Run(const Trace& trace, ModelledDevice& device, ModelledPool* pool) {
  std::vector<ModelledPool::Address> addresses(trace.blocks);
  uint64_t calls_at_half = 0;
  for (size_t index = 0; index < trace.events.size(); ++index) {
    const TraceEvent& event = trace.events[index];
    device.Begin(index);
    if (index == trace.events.size() / 2) calls_at_half = device.memory_calls();
    if (!event.allocates()) {
      if (pool != nullptr) pool->Free(addresses[event.block]);
      continue;
    }
    if (pool != nullptr) addresses[event.block] = pool->Allocate(event.bytes, event.stream);
    device.Launch(event);
    if (pool != nullptr && event.also_on != TraceEvent::kNoStream) {
      pool->RecordStream(addresses[event.block], event.also_on);
    }
  }
  SweepMeasures measures;
  measures.events = trace.events.size();
  measures.peak_requested_bytes = trace.peak_requested_bytes;
  measures.driver_calls = device.calls();
  measures.memory_calls = device.memory_calls();
  measures.steady_memory_calls = device.memory_calls() - calls_at_half;
  measures.driver_us = device.driver_us();
  measures.critical_us = device.Finish();
  return measures;
}

// The same with a pool over the engine.
SweepMeasures RunWith(const Trace& trace, ModelledWork work, std::unique_ptr<engine::CachingEngine> engine) {
  ModelledDevice ideal(trace, work);
  const double ideal_us = Run(trace, ideal, nullptr).critical_us;
  ModelledDevice device(trace, work);
  ModelledPool pool(device, std::move(engine));
  SweepMeasures measures = Run(trace, device, &pool);
  measures.ideal_us = ideal_us;
  measures.peak_reserved_bytes = pool.peak_reserved_bytes();
  measures.host_waits = pool.waits();
  measures.device_waits = pool.device_waits();
  return measures;
}

}  // namespace

double SweepMeasures::utilisation() const {
  return static_cast<double>(peak_requested_bytes) / static_cast<double>(peak_reserved_bytes);
}

double SweepMeasures::cost() const { return 100 * (1 - utilisation()) + 100 * (critical_us / ideal_us - 1); }

SweepMeasures ReplayModelled(const Trace& trace, const Slack& slack, ModelledWork work) {
  engine::EngineOptions options = engine::ExpandableOptions();
  options.slack = slack;
  return RunWith(trace, work, std::make_unique<engine::ExpandableEngine>(options));
}

SweepMeasures ReplayModelledFixed(const Trace& trace, ModelledWork work) {
  return RunWith(trace, work, std::make_unique<engine::CachingEngine>(engine::FixedOptions()));
}

Sweep RunSweep(const std::vector<Trace>& traces, const std::function<void(size_t, size_t)>& progress) {
  Sweep sweep{{std::begin(kScales), std::end(kScales)}, Settings(), {}};
  const size_t all = traces.size() * sweep.settings.size();
  size_t done = 0;
  for (const Trace& trace : traces) {
    std::vector<Trace> scaled;
    for (const double scale : sweep.scales) Scale(scaled.emplace_back(trace), scale);
    SweepTrace& swept = sweep.traces.emplace_back();
    swept.name = trace.name;
    for (const SweepSetting& setting : sweep.settings) {
      progress(done++, all);
      std::vector<SweepMeasures>& measures = swept.measures.emplace_back();
      for (const Trace& one : scaled) measures.push_back(ReplayModelled(one, setting.slack, ModelledWork::kTimed));
    }
  }
  for (SweepTrace& trace : sweep.traces) trace.chosen = ChooseWithout(sweep, trace);
  return sweep;
}

nlohmann::json ToJson(const Sweep& sweep) {
  nlohmann::json json = {
      {"scales", sweep.scales}, {"curve", nlohmann::json::array()}, {"traces", nlohmann::json::array()}};
  for (size_t setting = 0; setting < sweep.settings.size(); ++setting) {
    nlohmann::json line = ToJson(SummariseSetting(sweep, setting));
    line["constant"] = sweep.settings[setting].constant;
    line["share"] = sweep.settings[setting].share;
    json["curve"].push_back(std::move(line));
  }
  for (const SweepTrace& trace : sweep.traces) {
    json["traces"].push_back({{"name", trace.name},
                              {"chosen_by_the_others", NameOf(sweep.settings[trace.chosen])},
                              {"with_it", ToJson(Summarise(trace.measures[trace.chosen]))},
                              {"shipped", ToJson(Summarise(trace.measures[0]))}});
  }
  return json;
}

void PrintSweep(const Sweep& sweep) {
  std::printf("%-24s %6s %6s %10s %10s %10s %10s %8s %8s %9s %6s\n", "one part in so many", "in use", "least", "calls",
              "of memory", "steady", "driver ms", "waits", "on dev.", "longer %", "cost");
  for (size_t setting = 0; setting < sweep.settings.size(); ++setting) {
    PrintLine(NameOf(sweep.settings[setting]), SummariseSetting(sweep, setting));
  }
  std::printf("# chosen for each trace by the others, and what is shipped\n");
  for (const SweepTrace& trace : sweep.traces) {
    PrintLine(trace.name, Summarise(trace.measures[trace.chosen]));
    std::printf("#   with %s; shipped: cost %.2f\n", NameOf(sweep.settings[trace.chosen]).c_str(),
                Summarise(trace.measures[0]).cost);
  }
}

}  // namespace commpool::cli
