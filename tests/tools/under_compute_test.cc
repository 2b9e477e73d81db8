// The result of advise --under-compute for measured times; and a compiler accepts its kernel.
#include "tools/cli/under_compute.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/cli/compute_load.h"

namespace commpool::cli {
namespace {

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
  UnderCompute measured;
  measured.compute = "a kernel";
  measured.kernel_us = 250;
  measured.rounds = 9;
  measured.without = {"zero-SM: too old"};
  measured.rows.push_back({Collective::kAllGather, 1024, {Of("plain", 90, 100, 110), Of("window", 50, 60, 70)}});
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
