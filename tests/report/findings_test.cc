#include "src/report/findings.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "src/report/model_json.h"
#include "tests/report/report_fixture.h"

namespace commpool::internal::report {
namespace {

class FindingsTest : public ReportFixture {
 protected:
  static constexpr int64_t kSecond = 1'000'000'000;

  // A rank that holds so many blocks of 1 MiB, one a second.
  void WriteRank(int64_t rank, uint64_t blocks, int64_t ranks = 4) {
    const auto serve = [&](RecordingWriter& writer) {
      constexpr uint64_t kBase = uint64_t{1} << 32;
      writer.Write(kStart, recording::SegmentMade{1, 0, kBase, uint64_t{1} << 30});
      for (uint64_t block = 0; block < blocks; ++block) {
        const int64_t time = kStart + static_cast<int64_t>(block + 1) * kSecond;
        writer.Write(time, recording::BlockServed{1, 0, kBase + (block << 20), 1 << 20, 1 << 20, 1, 0});
      }
      writer.Write(kStart + 40 * kSecond, Block(0x100000, 512));
    };
    Record(serve, FactsOf(rank, ranks));
  }
  std::vector<std::string> Found() const {
    std::vector<std::string> texts;
    for (const FindingModel& finding : Build().findings) texts.push_back(finding.text);
    return texts;
  }
};

TEST_F(FindingsTest, NameTheRankThatHoldsFarMoreThanTheMedian) {
  for (int64_t rank = 0; rank < 4; ++rank) WriteRank(rank, rank == 2 ? 32 : 4);
  EXPECT_EQ(Found(),
            std::vector<std::string>{"rank 2 holds 8 times more of activations than the median, and it grows"});
  EXPECT_EQ(Build().findings.at(0).rank, 2u);
  EXPECT_EQ(Build().findings.at(0).pool, 0u);
}

TEST_F(FindingsTest, SayWhichRankUsedMostOfEachBudget) {
  for (uint64_t rank = 0; rank < 3; ++rank) {
    RecordingWriter writer(folder_, FactsOf(static_cast<int64_t>(rank), 3));
    const uint64_t name = writer.Text("pages");
    const uint64_t budget = writer.Text("kv");
    for (uint64_t pool = 1; pool < 3; ++pool) {
      writer.Write(kStart, recording::PoolMade{.pool = pool, .name = name, .budget = budget});
      const uint64_t peak = (rank == 1 ? 40 : 30) << 20;
      writer.Write(kStart + 1, recording::PoolBytes{
                                   .pool = pool, .budget = 1 << 20, .budget_peak = peak, .budget_limit = 48 << 20});
    }
  }
  const ReportModel model = Build();
  EXPECT_EQ(DescribeBudgets(model),
            std::vector<std::string>{"budget kv: 40 MiB of 48 MiB at most, on device 0 of rank 1"});
  ASSERT_EQ(model.ranks.at(2).budgets.size(), 1u) << "its pools share one";
  EXPECT_EQ(model.ranks[2].budgets[0].bytes, uint64_t{1} << 20);
  EXPECT_EQ(model.ranks[2].budgets[0].peak, uint64_t{30} << 20);
}

TEST_F(FindingsTest, NameNoLimitOfABudgetWithoutOne) {
  {
    RecordingWriter writer(folder_, FactsOf(0, 1));
    const uint64_t budget = writer.Text("kv");
    writer.Write(kStart, recording::PoolMade{.pool = 1, .name = budget, .budget = budget});
    writer.Write(kStart + 1,
                 recording::PoolBytes{.pool = 1, .budget_peak = uint64_t{40} << 20, .budget_limit = UINT64_MAX});
  }
  EXPECT_EQ(DescribeBudgets(Build()), std::vector<std::string>{"budget kv: 40 MiB at most, on device 0 of rank 0"});
}

TEST_F(FindingsTest, AreNoneWhereRanksHoldAboutTheSame) {
  for (int64_t rank = 0; rank < 4; ++rank) WriteRank(rank, 4 + static_cast<uint64_t>(rank));
  EXPECT_EQ(Found(), std::vector<std::string>());
}

TEST_F(FindingsTest, AreNoneOfTwoRanksForNeitherIsTheOddOne) {
  for (int64_t rank = 0; rank < 2; ++rank) WriteRank(rank, rank == 1 ? 32 : 4, 2);
  EXPECT_EQ(Found(), std::vector<std::string>());
}

TEST_F(FindingsTest, SayWhereAndWhenMemoryFirstRanOut) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto fail = [rank](RecordingWriter& writer) {
      const int64_t began = kStart + (5 - rank) * kSecond;
      if (rank > 0) WriteSpan(writer, began, began + 5, 1, recording::SpanKind::kSearch, "no memory");
    };
    Record(fail, FactsOf(rank, 3));
  }
  EXPECT_EQ(Found(), std::vector<std::string>{"ranks 1, 2 ran out of memory in activations at 3 s"});
  EXPECT_EQ(Build().findings.at(0).rank, 2u);
  std::ostringstream json;
  WriteModel(json, Build());
  EXPECT_NE(json.str().find("\"findings\":[{\"text\":\"ranks 1, 2 ran out"), std::string::npos);
}

TEST_F(FindingsTest, TellTheFirstCallThatDiffersInOneLine) {
  ReportModel report;
  EXPECT_EQ(DescribeDifference(report), std::nullopt);
  report.difference = DifferenceModel{.pool = "gradients",
                                      .call = 412,
                                      .ranks = {{0, 0, "allocate 1 at train.py:88"},
                                                {1, 0, "allocate 2 at train.py:90"},
                                                {2, 0, "allocate 2 at train.py:90"}}};
  EXPECT_EQ(DescribeDifference(report),
            "ranks 0, 1 differ from call 412 of gradients on: allocate 1 at train.py:88 / allocate 2 at train.py:90");
}

}  // namespace
}  // namespace commpool::internal::report
