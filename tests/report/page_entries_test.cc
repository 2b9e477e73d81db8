#include "src/report/page_entries.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "src/report/memory_book.h"
#include "src/report/rank_replay.h"
#include "tests/report/report_fixture.h"

namespace commpool::internal::report {
namespace {

struct Nothing {};

TEST(PageEntries, StopAtAKindThatIsNone) {
  Nothing nothing;
  EXPECT_TRUE(TakeEntries("", 0, nothing));
  EXPECT_FALSE(TakeEntries(std::string_view("\x7f\0", 2), 0, nothing));
  EXPECT_FALSE(TakeEntries(std::string_view("\0\0", 2), 0, nothing));
}

TEST(PageEntries, StopWhereAnEntryIsCut) {
  Nothing nothing;
  const std::string freed = {static_cast<char>(recording::kKindOf<recording::BlockFreed>), 5, 17};
  EXPECT_TRUE(TakeEntries(freed, 0, nothing));
  EXPECT_FALSE(TakeEntries(freed.substr(0, 2), 0, nothing));
}

// A checksum keeps such pages out, unless somebody makes one.
TEST(PageEntries, OfAnyBytesBreakNoTaker) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    ReportModel report;
    report.ranks.resize(1);
    Kept kept(report, {.blocks = 20, .events = 20});
    CallComparison calls;
    RankReplay replay(report, 0, kept, calls);
    MemoryListener nothing;
    MemoryBook book(report.texts, nothing);
    for (int page = 0; page < 40; ++page) {
      std::string bytes;
      for (int entry = 0; entry < 200; ++entry) {
        bytes += static_cast<char>(1 + random() % 15);
        // Small numbers meet each other; large ones overflow.
        for (int field = 0; field < 9; ++field) {
          if (random() % 30 == 0) bytes += std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9);
          bytes += static_cast<char>(random() % 4);
        }
      }
      const auto before = static_cast<Before>(random() % 3);
      const auto take = [&](auto& taker) {
        taker.BeginChapter(page * 1000, before);
        for (size_t begin = 0; begin < bytes.size(); begin += 10) {
          static_cast<void>(TakeEntries(std::string_view(bytes).substr(begin), page * 1000, taker));
        }
      };
      take(replay);
      take(book);
    }
    replay.Finish();
    book.Finish();
    kept.PutIntoReport();
  }
}

}  // namespace
}  // namespace commpool::internal::report
