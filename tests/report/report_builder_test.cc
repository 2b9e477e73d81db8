#include "src/report/report_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/report/model_json.h"
#include "tests/report/report_fixture.h"

namespace commpool::internal::report {
namespace {

using recording::BlockFreed;

class ReportBuilderTest : public ReportFixture {
 protected:
  // The one pool of the one rank.
  static const PoolModel& PoolOf(const ReportModel& report) { return report.ranks.at(0).pools.at(0); }
  static nlohmann::json JsonOf(const ReportModel& report) {
    std::ostringstream out;
    WriteModel(out, report);
    return nlohmann::json::parse(out.str());
  }
  static bool Says(const std::vector<std::string>& notes, const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(part) != std::string::npos; });
  }
};

TEST_F(ReportBuilderTest, HasBlocksOfSegmentsWithTheirLives) {
  const ReportModel report = BuildOf([](RecordingWriter& writer) {
    const uint64_t stack = writer.Text("model.py:3 forward\ntrain.py:1 main");
    writer.Write(kStart + 100, Block(0x100200, 512, stack));
    writer.Write(kStart + 200, Block(0x100000, 512));
    writer.Write(kStart + 300, BlockFreed{0x100200});
  });
  const PoolModel& pool = PoolOf(report);
  EXPECT_EQ(report.texts[pool.name], "activations");
  const nlohmann::json blocks = JsonOf(report)["ranks"][0]["pools"][0]["blocks"];
  EXPECT_EQ(blocks["segment"], nlohmann::json({0, 0}));
  EXPECT_EQ(blocks["offset"], nlohmann::json({0x200, 0}));
  EXPECT_EQ(blocks["requested"], nlohmann::json({511, 511}));
  EXPECT_EQ(blocks["from"], nlohmann::json({100, 200}));
  EXPECT_EQ(blocks["to"], nlohmann::json({300, -1}));
  EXPECT_EQ(report.texts[pool.blocks.at(0).stack], "model.py:3 forward\ntrain.py:1 main");
  EXPECT_EQ(report.texts[pool.blocks.at(0).stream], "default stream");
  EXPECT_EQ(pool.bytes.Points().back().allocated, 512u);
  EXPECT_EQ(pool.bytes.Points().back().reserved, 1u << 20);
}

TEST_F(ReportBuilderTest, TakesNothingTwiceThatChaptersRetell) {
  const ReportModel report = BuildOf([](RecordingWriter& writer) {
    writer.Write(kStart + 100, Block(0x100000, 512, writer.Text("a.py:1 f")));
    writer.Write(kStart + 150, recording::SpanBegan{.span = 1, .kind = recording::SpanKind::kCapture, .pool = 1});
    for (int64_t chapter = 1; chapter < 5; ++chapter) {
      writer.EndChapter();
      writer.Write(kStart + 1000 * chapter, Block(0x100000 + 512 * static_cast<uint64_t>(chapter), 512));
    }
  });
  ASSERT_EQ(report.ranks[0].pools.size(), 1u);
  EXPECT_EQ(PoolOf(report).segments.size(), 1u);
  ASSERT_EQ(PoolOf(report).blocks.size(), 5u);
  EXPECT_EQ(PoolOf(report).blocks[0].from, kStart + 100);
  EXPECT_EQ(PoolOf(report).bytes.Points().back().allocated, 5u * 512);
  EXPECT_EQ(JsonOf(report)["ranks"][0]["events"]["from"], nlohmann::json({150}));
  EXPECT_EQ(JsonOf(report)["ranks"][0]["events"]["to"], nlohmann::json({-1}));
}

TEST_F(ReportBuilderTest, EndsWhatIsNotRetoldAfterAGap) {
  const ReportModel report = BuildOf([](RecordingWriter& writer) {
    writer.Write(kStart + 100, Block(0x100000, 512));
    writer.Write(kStart + 200, Block(0x100200, 512));
    writer.Write(kStart + 200,
                 recording::PoolBytes{.pool = 1, .reserved = 1 << 20, .allocated = 1024 + 256, .pending = 512});
    writer.LosePage();
    writer.Write(kStart + 300, BlockFreed{0x100000});
    writer.EndChapter();
    writer.Write(kStart + 50'000'000, Block(0x100400, 512));
  });
  const std::vector<BlockModel>& blocks = PoolOf(report).blocks;
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].to, kStart + 200);
  EXPECT_EQ(blocks[1].to, kUnknown);
  EXPECT_EQ(PoolOf(report).segments.size(), 1u);
  const std::vector<BytePoint> points = PoolOf(report).bytes.Points();
  EXPECT_EQ(points.back().allocated, 1024u + 256);
  EXPECT_EQ(points.back().reserved, 1u << 20);
  EXPECT_EQ(points.back().pending, 512u);
  // No dip while the chapter retells.
  for (const BytePoint& point : points) EXPECT_TRUE(point.time <= kStart + 200 || point.allocated >= 512u + 256);
  EXPECT_TRUE(Says(report.ranks[0].notes, "1 page of the recording is missing"));
}

TEST_F(ReportBuilderTest, CutsSegmentsOfWhichAPartGoes) {
  Record([](RecordingWriter& writer) { writer.Write(kStart + 100, recording::SegmentGone{1, 0x140000, 0x40000}); });
  const nlohmann::json segments = JsonOf(Build())["ranks"][0]["pools"][0]["segments"];
  EXPECT_EQ(segments["address"], nlohmann::json({"0x100000", "0x100000", "0x180000"}));
  EXPECT_EQ(segments["bytes"], nlohmann::json({0x100000, 0x40000, 0x80000}));
  EXPECT_EQ(segments["to"], nlohmann::json({100, -1, -1}));
}

TEST_F(ReportBuilderTest, LeavesTheSmallestBlocksOutAndCountsThem) {
  Record([](RecordingWriter& writer) {
    for (uint64_t block = 0; block < 100; ++block) {
      const int64_t time = kStart + static_cast<int64_t>(block) * 1000;
      writer.Write(time, Block(0x100000, 512 + block));
      writer.Write(time + 10, BlockFreed{0x100000});
    }
  });
  const ReportModel report = Build({.blocks = 10});
  ASSERT_EQ(PoolOf(report).blocks.size(), 10u);
  for (const BlockModel& block : PoolOf(report).blocks) EXPECT_GE(block.bytes, 602u);
  EXPECT_EQ(PoolOf(report).left_out.blocks, 90u);
  EXPECT_EQ(PoolOf(report).left_out.bytes, 90u * 512 + 89 * 90 / 2);
  EXPECT_TRUE(Says(report.notes, "90 blocks are not drawn one by one"));
}

TEST_F(ReportBuilderTest, SaysWhoHeldThePeakByPoolAndStack) {
  Record([](RecordingWriter& writer) {
    WritePool(writer, kStart, 2);
    const uint64_t forward = writer.Text("model.py:3 forward\ntrain.py:1 main");
    writer.Write(kStart + 1, Block(0x100000, 1024, forward));
    writer.Write(kStart + 2, Block(0x101000, 2048, forward));
    writer.Write(kStart + 3, Block(0x200000, 512, 0, 2));
    writer.Write(kStart + 4, recording::SmallBlocks{.pool = 2, .bytes = 256, .served = 9, .cached = 4});
    writer.Write(kStart + 5, recording::PoolBytes{.pool = 2, .reserved = 1 << 20, .allocated = 768});
    writer.Write(kStart + 5, BlockFreed{0x100000});
    writer.Write(kStart + 6, Block(0x100000, 64, forward));
  });
  const PeakModel peak = Build().ranks[0].peak;
  EXPECT_EQ(peak.time, kStart + 5);
  EXPECT_EQ(peak.bytes, 1024u + 2048 + 768);
  using Holders = std::vector<std::pair<std::string, uint64_t>>;
  Holders holders;
  for (const HolderModel& holder : peak.holders) holders.emplace_back(holder.what, holder.bytes);
  EXPECT_EQ(holders, (Holders{{"model.py:3 forward", 3072},
                              {"free in threads' caches: blocks of 256 B", 1024},
                              {"no stack was recorded", 512},
                              {"small blocks that threads' caches served", 256}}));
  EXPECT_EQ(peak.holders[0].blocks, 2);
  EXPECT_EQ(peak.holders[2].pool, 1u);
}

TEST_F(ReportBuilderTest, FindsTheFirstCallThatDiffersBetweenRanks) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    RecordingWriter writer(folder_, FactsOf(rank, 4));
    WritePool(writer, kStart, 1, 7);
    const uint64_t allocate = writer.Text("allocate");
    for (uint64_t call = 0; call < (rank == 0 ? 10u : 20u); ++call) {
      const uint64_t bytes = rank == 2 && call >= 6 ? 1024 : 512;
      writer.Write(kStart + static_cast<int64_t>(call), recording::Call{1, call, allocate, bytes});
    }
  }
  const ReportModel report = Build();
  EXPECT_EQ(JsonOf(report)["difference"], nlohmann::json::parse(R"({"pool": "activations", "call": 6, "ranks": [
                                              {"rank": 0, "time": 6, "text": "allocate 512 bytes"},
                                              {"rank": 1, "time": 6, "text": "allocate 512 bytes"},
                                              {"rank": 2, "time": 6, "text": "allocate 1,024 bytes"}]})"));
  EXPECT_EQ(report.ranks[2].events.back().kind, EventKind::kDifference);
  EXPECT_TRUE(Says(report.notes, "4 ranks: rank 3 left no recording"));
  EXPECT_EQ(report.without_recording, std::vector<int64_t>{3});
}

// Rank 0 keeps one agreement in two to align clocks by; it came to all.
TEST_F(ReportBuilderTest, BlamesNobodyWhoseAgreementsAreTooManyToKeep) {
  constexpr uint64_t kLast = 50'001;
  for (int64_t rank = 0; rank < 2; ++rank) {
    RecordingWriter writer(folder_, FactsOf(rank, 2));
    WritePool(writer, kStart, 1, 7);
    for (uint64_t number = rank == 0 ? 1 : kLast - 2; number <= kLast; ++number) {
      const int64_t time = kStart + static_cast<int64_t>(number) * 100;
      writer.Write(time + rank * 10, recording::SpanBegan{.span = number, .pool = 1, .home = 7, .number = number});
      const uint64_t failure = number == kLast && rank == 1 ? writer.Text("no memory") : 0;
      writer.Write(time + 50, recording::SpanEnded{number, failure});
    }
  }
  const ReportModel report = Build();
  const EventModel& failed = report.ranks[1].events.back();
  EXPECT_EQ(failed.text, "no memory");
  EXPECT_EQ(failed.waited_for, -1);
  // Where both ranks have kept it.
  const EventModel& before = report.ranks[1].events[1];
  EXPECT_EQ(before.number, kLast - 1);
  EXPECT_EQ(before.waited_for, 1);
}

TEST_F(ReportBuilderTest, HasSleepsRegistrationsAndFailures) {
  const ReportModel report = BuildOf([](RecordingWriter& writer) {
    writer.Write(kStart + 700, recording::Registered{
                                   .pool = 1, .address = 1 << 20, .bytes = 1 << 20, .communicator = 0xab, .cost = 300});
    writer.Write(kStart + 800, recording::Deregistered{1, 1 << 20, 0xab});
    WriteSpan(writer, kStart + 900, kStart + 1000, 1, recording::SpanKind::kSleep);
    WriteSpan(writer, kStart + 1100, kStart + 1200, 2, recording::SpanKind::kWake, "no memory");
    WriteSpan(writer, kStart + 1300, kStart + 1400, 3, recording::SpanKind::kWake);
    writer.Write(kStart + 1500, recording::Lost{5});
  });
  const nlohmann::json rank = JsonOf(report)["ranks"][0];
  const nlohmann::json& pool = rank["pools"][0];
  EXPECT_EQ(pool["asleep"], nlohmann::json::parse(R"({"from": [1000], "to": [1400]})"));
  EXPECT_EQ(pool["registrations"]["segment"], nlohmann::json::parse("[0]"));
  EXPECT_EQ(pool["registrations"]["to"], nlohmann::json::parse("[800]"));
  EXPECT_EQ(rank["events"]["kind"], nlohmann::json({"registration", "sleep", "wake", "wake"}));
  EXPECT_EQ(rank["events"]["failed"], nlohmann::json({0, 0, 1, 0}));
  EXPECT_EQ(rank["events"]["from"][0], 400);
  EXPECT_EQ(rank["events"]["text"][2], "no memory");
  EXPECT_TRUE(Says(report.ranks[0].notes, "the disk was full or too slow: 5"));
}

TEST_F(ReportBuilderTest, KnowsTheSegmentOfARegistrationThatCameBeforeIt) {
  const ReportModel report = BuildOf([](RecordingWriter& writer) {
    writer.Write(kStart + 1, recording::Registered{.pool = 1, .address = 4 << 20, .communicator = 0xab});
    writer.Write(kStart + 2, recording::SegmentMade{1, 0, 4 << 20, 1 << 20});
  });
  ASSERT_EQ(PoolOf(report).registrations.size(), 1u);
  EXPECT_EQ(PoolOf(report).registrations[0].segment, 1u);
}

TEST_F(ReportBuilderTest, ShowsTheNewestRecordingOfARankAndNamesThoseThatCannotBeRead) {
  for (uint64_t start = 0; start < 2; ++start) {
    recording::ProcessFacts facts = FactsOf(0);
    facts.process = 9 - start;
    facts.wall_clock += start;
    Record([](RecordingWriter&) {}, facts);
  }
  Store(folder_ + "/other.recording", "no recording at all");
  const ReportModel report = Build();
  ASSERT_EQ(report.ranks.size(), 1u);
  EXPECT_EQ(report.ranks[0].facts.process, 8u);
  EXPECT_TRUE(Says(report.notes, "rank 0 left several recordings"));
  EXPECT_TRUE(Says(report.notes, "other.recording\" is no recording of commpool"));
}

TEST_F(ReportBuilderTest, ShowsTheNewestRecordingOfAProcessWithoutARankBesideOtherProcesses) {
  for (uint64_t start = 0; start < 4; ++start) {
    recording::ProcessFacts facts = FactsOf(-1, -1);
    facts.process = 8 + start % 2;
    facts.wall_clock += start;
    Record([](RecordingWriter&) {}, facts);
  }
  const ReportModel report = Build();
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[1].facts.wall_clock, FactsOf(-1).wall_clock + 3);
  EXPECT_TRUE(Says(report.notes, "process 9 left several recordings"));
}

// The folder has the eight ranks of a first start, and the four of a second.
TEST_F(ReportBuilderTest, ShowsNoRankOfAnOlderAndLargerStart) {
  for (int64_t rank = 0; rank < 12; ++rank) {
    recording::ProcessFacts facts = rank < 8 ? FactsOf(rank, 8) : FactsOf(rank - 8, 4);
    facts.process = 100 + static_cast<uint64_t>(rank);
    if (rank >= 8) facts.wall_clock += 1'000'000'000;
    Record([](RecordingWriter&) {}, facts);
  }
  const ReportModel report = Build();
  ASSERT_EQ(report.ranks.size(), 4u);
  for (const RankModel& rank : report.ranks) EXPECT_GE(rank.facts.process, 108u);
  EXPECT_TRUE(Says(report.notes, "of a start with another number of ranks"));
}

TEST_F(ReportBuilderTest, WritesTheModelAsJson) {
  {
    RecordingWriter writer(folder_, FactsOf(0));
    WritePool(writer, kStart + 5);
    writer.Write(kStart + 100, Block(0x100200, 512));
    writer.Write(kStart + 300, BlockFreed{0x100200});
  }
  const nlohmann::json model = JsonOf(Build());
  EXPECT_EQ(model["version"], 1);
  EXPECT_EQ(model["end"], 300);
  EXPECT_TRUE(model["difference"].is_null());
  const nlohmann::json& rank = model["ranks"][0];
  EXPECT_EQ(rank["host"], "node");
  EXPECT_EQ(rank["begin"], 0);
  const nlohmann::json& pool = rank["pools"][0];
  EXPECT_EQ(pool["from"], 5);
  EXPECT_EQ(pool["to"], -1);
  EXPECT_EQ(pool["segments"]["address"][0], "0x100000");
  EXPECT_EQ(pool["blocks"]["offset"], nlohmann::json({0x200}));
  EXPECT_EQ(pool["blocks"]["from"], nlohmann::json({100}));
  EXPECT_EQ(pool["blocks"]["to"], nlohmann::json({300}));
  EXPECT_EQ(pool["blocks"]["stack"], nlohmann::json({-1}));
}

}  // namespace
}  // namespace commpool::internal::report
