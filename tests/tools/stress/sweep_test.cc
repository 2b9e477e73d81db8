// The sweep's modelled pools reserve as much as real ones, and its choice for a trace does not use that trace.
#include "tools/stress/sweep/sweep.h"

#include <gtest/gtest.h>

#include "tools/cli/replay/replay_run.h"

namespace commpool::cli {
namespace {

using internal::engine::Slack;

constexpr uint64_t kMiB = 1 << 20;

// Blocks of changing sizes of which some live long.
Trace Changing(const std::string& name, uint32_t streams = 1) {
  std::string text;
  for (uint64_t block = 0; block < 600; ++block) {
    const uint64_t bytes = (8 + (block * 37) % 61) * kMiB + block * 4096;
    text += "a " + std::to_string(block) + " " + std::to_string(bytes) + " 0\n";
    if (block >= 12 && block % 50 != 0) text += "f " + std::to_string(block - (block % 50 == 12 ? 11 : 12)) + "\n";
  }
  // Leaves out frees of blocks that were freed already or never made.
  std::string kept;
  std::vector<bool> live(600);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    const std::string line = text.substr(begin, end - begin);
    const size_t block = std::stoul(line.substr(2));
    if (line[0] == 'a' || live[block]) kept += line;
    live[block] = line[0] == 'a';
    begin = end;
  }
  Trace trace = ParseTrace(name, kept).value();
  if (streams > 1) SpreadOverStreams(trace, streams);
  return trace;
}

TEST(SweepTest, AModelledPoolReservesAsMuchAsARealOne) {
  const Result<std::unique_ptr<SoloDevice>> device = SoloDevice::Open(1, DriverTimes::kMeasured);
  ASSERT_TRUE(device.ok()) << device.status().message();
  const Trace recorded = ReadTrace("tests/data/traces/gnn.trace.xz").value();
  for (const Trace& trace : {Changing("changing"), recorded}) {
    const SweepMeasures modelled = ReplayModelled(trace, Slack(), ModelledWork::kUntilNextEvent);
    const Result<ReplayMeasures> real = ReplayInPool(**device, trace, {});
    ASSERT_TRUE(real.ok()) << real.status().message();
    EXPECT_EQ(modelled.peak_reserved_bytes, real->peak_reserved_bytes) << trace.name;
    const SweepMeasures fixed = ReplayModelledFixed(trace, ModelledWork::kUntilNextEvent);
    const Result<ReplayMeasures> really_fixed = ReplayInPool(**device, trace, {.mode = ReplayMode::kFixed});
    ASSERT_TRUE(really_fixed.ok()) << really_fixed.status().message();
    EXPECT_EQ(fixed.peak_reserved_bytes, really_fixed->peak_reserved_bytes) << trace.name;
  }
}

TEST(SweepTest, WaitingShowsInTheCriticalPath) {
  const Trace trace = Changing("changing", 4);
  const SweepMeasures patient = ReplayModelled(trace, {.wait_share = 1000}, ModelledWork::kTimed);
  const SweepMeasures greedy = ReplayModelled(trace, {.wait_share = 0, .host_wait_share = 0}, ModelledWork::kTimed);
  EXPECT_EQ(greedy.host_waits, 0u);
  EXPECT_GT(patient.utilisation(), greedy.utilisation());
  EXPECT_GT(patient.critical_us, patient.ideal_us);
  EXPECT_GE(greedy.critical_us, greedy.ideal_us);
}

// The host runs ahead of blocks that two streams used, so that their fences pile up.
TEST(SweepTest, AsksNoFenceBehindOneThatHasNotPassed) {
  std::string text;
  for (int block = 0; block < 800; ++block) {
    text += "a " + std::to_string(block) + " " + std::to_string(64 * kMiB) + " 0\nf " + std::to_string(block) + "\n";
  }
  Trace trace = ParseTrace("piled", text).value();
  SpreadOverStreams(trace, 2);
  const SweepMeasures measures = ReplayModelled(trace, {.wait_share = 0, .host_wait_share = 0}, ModelledWork::kTimed);
  EXPECT_LT(measures.driver_calls, 6 * measures.events);
}

TEST(SweepTest, AModelledReplayIsTheSameEachTime) {
  const Trace trace = Changing("changing", 3);
  const SweepMeasures first = ReplayModelled(trace, Slack(), ModelledWork::kTimed);
  const SweepMeasures second = ReplayModelled(trace, Slack(), ModelledWork::kTimed);
  EXPECT_EQ(first.critical_us, second.critical_us);
  EXPECT_EQ(first.driver_calls, second.driver_calls);
  EXPECT_EQ(first.peak_reserved_bytes, second.peak_reserved_bytes);
}

TEST(SweepTest, ChoosesForATraceByTheOthers) {
  const std::vector<Trace> traces = {Changing("one"), Changing("two", 4)};
  size_t last = 0;
  const Sweep sweep = RunSweep(traces, [&](size_t done, size_t all) {
    EXPECT_LT(done, all);
    last = done;
  });
  EXPECT_EQ(last + 1, traces.size() * sweep.settings.size());
  ASSERT_EQ(sweep.traces.size(), 2u);
  for (size_t index = 0; index < 2; ++index) {
    const SweepTrace& other = sweep.traces[1 - index];
    const auto cost = [&](size_t setting) {
      double sum = 0;
      for (const SweepMeasures& measures : other.measures[setting]) sum += measures.cost();
      return sum;
    };
    for (size_t setting = 0; setting < sweep.settings.size(); ++setting) {
      EXPECT_LE(cost(sweep.traces[index].chosen), cost(setting)) << setting;
    }
  }
}

}  // namespace
}  // namespace commpool::cli
