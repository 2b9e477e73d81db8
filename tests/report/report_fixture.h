// A folder for the recordings of a test, and what the report makes of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "src/report/report_builder.h"
#include "tests/report/recording_writer.h"

namespace commpool::internal::report {

class ReportFixture : public testing::Test {
 protected:
  static constexpr int64_t kStart = 1'000'000;

  ReportFixture() : folder_(testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }
  ~ReportFixture() override { std::filesystem::remove_all(folder_); }

  static recording::ProcessFacts FactsOf(int64_t rank, int64_t ranks = 1) {
    // Its process, wall clock, steady clock, limit, host, program and boot.
    return {rank, ranks, 100 + static_cast<uint64_t>(rank), 5'000'000'000, kStart, 4 << 20, "node", "train.py", ""};
  }
  // A pool with one segment of 1 MiB at 0x100000.
  static void WritePool(RecordingWriter& writer, int64_t time, uint64_t pool = 1, uint64_t home = 0) {
    const uint64_t name = writer.Text("activations");
    const uint64_t kind = writer.Text("vmm fixed");
    writer.Write(time, recording::PoolMade{pool, 0, name, kind, 0, home, home == 0 ? 0u : 1u});
    writer.Write(time, recording::SegmentMade{pool, 0, pool << 20, 1 << 20});
  }
  static recording::BlockServed Block(uint64_t address, uint64_t bytes, uint64_t stack = 0, uint64_t pool = 1,
                                      uint64_t stream = 1) {
    return {pool, 0, address, bytes, bytes - 1, stream, stack};
  }

  static void WriteSpan(RecordingWriter& writer, int64_t from, int64_t to, uint64_t span, recording::SpanKind kind,
                        const std::string& failure = "") {
    writer.Write(from, recording::SpanBegan{.span = span, .kind = kind, .pool = 1});
    writer.Write(to, recording::SpanEnded{.span = span, .failure = writer.Text(failure)});
  }

  // A rank with a pool that does what `tell` writes; its recording.
  template <typename Tell>
  std::string Record(const Tell& tell, const recording::ProcessFacts& facts = FactsOf(0)) const {
    RecordingWriter writer(folder_, facts);
    WritePool(writer, kStart);
    tell(writer);
    return writer.path();
  }
  template <typename Tell>
  ReportModel BuildOf(const Tell& tell) const {
    Record(tell);
    return Build();
  }
  ReportModel Build(const Limits& limits = {}) const { return BuildReport(OpenRecordings(folder_).value(), limits); }

  static std::string Load(const std::string& path) {
    std::ostringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    return content.str();
  }
  static void Store(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  const std::string folder_;
};

}  // namespace commpool::internal::report
