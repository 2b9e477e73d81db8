// Measured times: medians and intervals, and what `commpool advise` makes of them, alone and under compute; and a
// compiler accepts its kernel.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/cli/advice.h"
#include "tools/cli/compute_load.h"
#include "tools/cli/median.h"
#include "tools/cli/under_compute.h"

namespace commpool::cli {
namespace {

std::vector<double> UpTo(int count) {
  std::vector<double> values;
  for (int value = count; value > 0; --value) values.push_back(value);
  return values;
}

TEST(SpreadOf, IsTheWholeRangeOfFewValues) {
  const Spread spread = SpreadOf({3, 1, 2});
  EXPECT_EQ(spread.median, 2);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 3);
  EXPECT_EQ(SpreadOf({7}).low, 7);
  EXPECT_EQ(SpreadOf({7}).high, 7);
}

// The largest number of values outside at each end with 2 P(Binomial(n, 1/2) < number + 1) <= 0.05, from a table.
TEST(SpreadOf, LeavesOutWhatTheMedianNeedNotLieBeyond) {
  EXPECT_EQ(SpreadOf(UpTo(8)).low, 1);
  EXPECT_EQ(SpreadOf(UpTo(9)).low, 2);
  EXPECT_EQ(SpreadOf(UpTo(9)).high, 8);
  EXPECT_EQ(SpreadOf(UpTo(15)).low, 4);
  EXPECT_EQ(SpreadOf(UpTo(15)).high, 12);
  EXPECT_EQ(SpreadOf(UpTo(20)).low, 6);
  EXPECT_EQ(SpreadOf(UpTo(15)).median, 8);
  EXPECT_EQ(SpreadOf(UpTo(5000)).low, 2431) << "the chance of none below is less than the least double";
}

constexpr BufferKind kPlain = BufferKind::kPlain;
constexpr BufferKind kLocal = BufferKind::kLocal;
constexpr BufferKind kWindow = BufferKind::kWindow;

TEST(BestKind, IsTheFastest) {
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 9}, {kWindow, 5}}), kWindow);
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 5}, {kWindow, 9}}), kLocal);
  EXPECT_EQ(BestKind({{kPlain, 4}, {kLocal, 5}, {kWindow, 9}}), kPlain);
}

TEST(BestKind, CostsLeastToHaveAmongThoseWithinTwoPercent) {
  EXPECT_EQ(BestKind({{kPlain, 101}, {kLocal, 100.5}, {kWindow, 100}}), kPlain);
  EXPECT_EQ(BestKind({{kPlain, 110}, {kLocal, 101}, {kWindow, 100}}), kLocal);
  EXPECT_EQ(BestKind({{kPlain, 102.1}, {kWindow, 100}}), kWindow);
}

TEST(BestKind, DoesWithoutAKindThatCannotBeHad) {
  EXPECT_EQ(BestKind({{kPlain, 10}, {kLocal, 9}}), kLocal);
  EXPECT_EQ(BestKind({{kWindow, 9}}), kWindow);
}

TEST(Gain, IsMeasuredAgainstPlain) {
  EXPECT_DOUBLE_EQ(Gain({{kPlain, 10}, {kWindow, 5}}, kWindow), 2.0);
  EXPECT_DOUBLE_EQ(Gain({{kPlain, 10}, {kWindow, 5}}, kPlain), 1.0);
  EXPECT_DOUBLE_EQ(Gain({{kWindow, 5}}, kWindow), 1.0);
}

AdviceRow Row(uint64_t bytes, double plain, double window) {
  return {.bytes = bytes, .times = {{kPlain, plain}, {kWindow, window}}};
}

TEST(MakeRanges, JoinsNeighboursOfOneKind) {
  const std::vector<AdviceRange> ranges = MakeRanges({Row(1024, 10, 5), Row(2048, 12, 8), Row(4096, 10, 20)});
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].kind, kWindow);
  EXPECT_EQ(ranges[0].min_bytes, 1024u);
  EXPECT_EQ(ranges[0].max_bytes, 4095u);  // what lies between two sizes goes with the smaller
  EXPECT_DOUBLE_EQ(ranges[0].least_gain, 1.5);
  EXPECT_DOUBLE_EQ(ranges[0].most_gain, 2.0);
  EXPECT_EQ(ranges[1].kind, kPlain);
  EXPECT_EQ(ranges[1].min_bytes, 4096u);
  EXPECT_EQ(ranges[1].max_bytes, 4096u);
}

TEST(MakeRanges, GivesAKindThatIsBestTwiceTwoRanges) {
  const std::vector<AdviceRange> ranges = MakeRanges({Row(1, 10, 5), Row(2, 5, 10), Row(4, 10, 5)});
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[2].kind, kWindow);
  EXPECT_EQ(ranges[2].min_bytes, 4u);
}

TEST(MakeRanges, OfNothingIsNothing) { EXPECT_TRUE(MakeRanges({}).empty()); }

AddedTime Of(const char* kind, double low, double median, double high) {
  return {.kind = kind, .alone_us = 10, .added_us = {median, low, high}};
}

TEST(LeastAdded, IsTheKindWhoseWholeIntervalLiesBelow) {
  EXPECT_EQ(LeastAdded({Of("plain", 90, 100, 110), Of("window", 50, 60, 70)}).kind, "window");
  EXPECT_EQ(LeastAdded({Of("plain", 90, 100, 110), Of("local", 70, 80, 85), Of("window", 50, 60, 65)}).kind, "window");
  EXPECT_EQ(LeastAdded({Of("plain", 50, 60, 70), Of("window", 90, 100, 110)}).kind, "plain");
}

TEST(LeastAdded, IsWhatCostsLeastToHaveWhereIntervalsMeet) {
  EXPECT_EQ(LeastAdded({Of("plain", 90, 100, 110), Of("window", 50, 60, 90)}).kind, "plain");
  EXPECT_EQ(LeastAdded({Of("plain", 90, 100, 110), Of("local", 60, 70, 80), Of("window", 50, 60, 70)}).kind, "local");
  EXPECT_EQ(LeastAdded({Of("window", -3, 1, 2)}).kind, "window");
}

TEST(UnderCompute, IsTold) {
  const UnderCompute measured = {
      .compute = "a kernel",
      .kernel_us = 250,
      .rounds = 9,
      .rows = {{Collective::kAllGather, 1024, {Of("plain", 90, 100, 110), Of("window", 50, 60, 70)}}},
      .without = {"zero-SM: too old"}};
  const nlohmann::json json = ToJson(measured);
  EXPECT_EQ(json["compute"], "a kernel");
  EXPECT_EQ(json["without"], nlohmann::json::array({"zero-SM: too old"}));
  const nlohmann::json& row = json["rows"][0];
  EXPECT_EQ(row["collective"], "all-gather");
  EXPECT_EQ(row["least"], "window");
  EXPECT_EQ(row["kinds"]["plain"],
            nlohmann::json({{"alone_us", 10.0}, {"added_us", 100.0}, {"low", 90.0}, {"high", 110.0}}));
  ::testing::internal::CaptureStdout();
  Print(measured);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("compute: a kernel, 250 us a kernel; medians of 9 rounds, in brackets an interval with 95 %"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("without zero-SM: too old"), std::string::npos) << text;
  EXPECT_NE(text.find("[50.0, 70.0]  least"), std::string::npos) << text;
}

// PyTorch's environment has a compiler of PTX, which needs no GPU.
std::string PtxCompiler() {
  FILE* const found = popen(
      "bash -c 'source tools/torch_environment.sh && "
      "ls $(torch_folder)/lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas' 2>/dev/null",
      "r");
  std::array<char, 4096> line = {};
  const bool read = std::fgets(line.data(), line.size(), found) != nullptr;
  pclose(found);
  const std::string text = read ? line.data() : "";
  return text.substr(0, text.find('\n'));
}

TEST(ComputeLoad, IsAKernelThatACompilerTakes) {
  const std::string compiler = PtxCompiler();
  if (compiler.empty()) GTEST_SKIP() << "no ptxas: tools/setup --torch";
  const std::string file = ::testing::TempDir() + "/load.ptx";
  std::ofstream(file) << ComputeLoadPtx();
  for (const std::string architecture : {"sm_80", "sm_90"}) {
    const std::string made = ::testing::TempDir() + "/load." + architecture;
    const std::string command = compiler + " -arch=" + architecture + " " + file + " -o " + made;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace commpool::cli
