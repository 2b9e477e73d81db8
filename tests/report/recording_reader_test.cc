#include "src/report/recording_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "src/report/memory_book.h"
#include "src/report/page_entries.h"
#include "src/report/rank_replay.h"
#include "tests/report/report_fixture.h"

namespace commpool::internal::report {
namespace {

using recording::kPageBytes;

// What was freed, and how chapters began.
struct Frees {
  std::vector<uint64_t> addresses;
  std::vector<int64_t> times;
  std::vector<Before> chapters;

  void BeginChapter(int64_t, Before before) { chapters.push_back(before); }
  void Take(int64_t time, const recording::BlockFreed& entry) {
    addresses.push_back(entry.address);
    times.push_back(time);
  }
};

class RecordingReaderTest : public ReportFixture {
 protected:
  // Frees 0, 1, 2 ...
  std::string WriteFrees(uint64_t count) {
    RecordingWriter writer(folder_, FactsOf(0));
    for (uint64_t free = 0; free < count; ++free) {
      writer.Write(kStart + 10 * static_cast<int64_t>(free), recording::BlockFreed{free});
    }
    return writer.path();
  }
  RecordingReader Written(uint64_t count) { return RecordingReader::Open(WriteFrees(count)).value(); }
  static Frees Read(const RecordingReader& reader) {
    Frees frees;
    EXPECT_EQ(reader.Read(frees), 0u);
    return frees;
  }
  static std::string WhyNot(const std::string& path) { return RecordingReader::Open(path).status().message(); }
};

TEST_F(RecordingReaderTest, ReadsEntriesInTheirOrderWithTheirTimes) {
  const RecordingReader reader = Written(50'000);
  const Frees frees = Read(reader);
  ASSERT_EQ(frees.addresses.size(), 50'000u);
  for (uint64_t free = 0; free < frees.addresses.size(); ++free) {
    ASSERT_EQ(frees.addresses[free], free);
    ASSERT_EQ(frees.times[free], kStart + 10 * static_cast<int64_t>(free));
  }
  EXPECT_EQ(frees.chapters.front(), Before::kNothing);
  EXPECT_TRUE(reader.notes().empty());
  EXPECT_EQ(reader.begin(), kStart);
  EXPECT_EQ(reader.facts().program, "train.py");
}

TEST_F(RecordingReaderTest, BeginsWithTheOldestChapterThatARingHasKept) {
  const RecordingReader reader = Written(2'000'000);
  const Frees frees = Read(reader);
  ASSERT_FALSE(frees.addresses.empty());
  EXPECT_GT(frees.addresses.front(), 0u);
  EXPECT_EQ(frees.addresses.back(), 1'999'999u);
  EXPECT_EQ(frees.addresses.back() - frees.addresses.front() + 1, frees.addresses.size());
  EXPECT_GT(reader.begin(), kStart);
  ASSERT_EQ(reader.notes().size(), 1u);
  EXPECT_NE(reader.notes().front().find("are gone: the recording reached its limit of 4 MiB"), std::string::npos)
      << reader.notes().front();
}

TEST_F(RecordingReaderTest, GoesOnWithTheNextChapterAfterADamagedPage) {
  const std::string path = WriteFrees(200'000);
  std::string content = Load(path);
  content[3 * kPageBytes + 1000] ^= 1;
  Store(path, content);
  const RecordingReader reader = RecordingReader::Open(path).value();
  const Frees frees = Read(reader);
  EXPECT_EQ(frees.addresses.front(), 0u);
  EXPECT_EQ(frees.addresses.back(), 199'999u);
  EXPECT_LT(frees.addresses.size(), 200'000u);
  EXPECT_EQ(std::count(frees.chapters.begin(), frees.chapters.end(), Before::kGap), 1);
  EXPECT_EQ(reader.notes().front(), "1 page of the recording is damaged");
}

TEST_F(RecordingReaderTest, ReadsATruncatedFileUpToItsEnd) {
  const std::string path = WriteFrees(100'000);
  Store(path, Load(path).substr(0, 2 * kPageBytes + 500));
  const Frees frees = Read(RecordingReader::Open(path).value());
  EXPECT_EQ(frees.addresses.front(), 0u);
  EXPECT_LT(frees.addresses.size(), 100'000u);
}

TEST_F(RecordingReaderTest, SaysInWordsWhatAFileIsThatItCannotRead) {
  const std::string path = WriteFrees(10);
  std::string future = Load(path);
  future[4] = 9;
  std::string damaged = Load(path);
  damaged[60] ^= 1;
  const std::pair<std::string, std::string> wrong[] = {{future, "version 9"},
                                                       {damaged, "is damaged"},
                                                       {"GIF89a, and so on", "is no recording of commpool"},
                                                       {"", "is empty"}};
  for (const auto& [content, reason] : wrong) {
    Store(path, content);
    EXPECT_NE(WhyNot(path).find(reason), std::string::npos) << WhyNot(path);
  }
  EXPECT_NE(WhyNot(folder_ + "/nothing").find("No such file"), std::string::npos);
  EXPECT_FALSE(WhyNot(folder_).empty());
}

TEST_F(RecordingReaderTest, SaysWhereNothingWasRecorded) {
  const RecordingReader reader = Written(0);
  EXPECT_TRUE(Read(reader).addresses.empty());
  EXPECT_EQ(reader.notes(), std::vector<std::string>{"the recording has no entries"});
}

TEST_F(RecordingReaderTest, SaysWhatIsNoFileAndReadsNothingOfIt) {
  WriteFrees(10);
  for (const std::string name : {"pipe", "folder", "link"}) {
    const std::string path = folder_ + "/" + name;
    ASSERT_EQ(name == "pipe" ? mkfifo(path.c_str(), 0600) : 0, 0);
    if (name == "folder") std::filesystem::create_directory(path);
    if (name == "link") std::filesystem::create_symlink("/dev/zero", path);
    EXPECT_EQ(WhyNot(path), "\"" + path + "\" is no file");
  }
}

TEST_F(RecordingReaderTest, SaysThatAFileWentBeforeItWasRead) {
  const RecordingReader reader = Written(10);
  std::filesystem::remove(reader.path());
  Frees frees;
  EXPECT_EQ(reader.Read(frees), 1u);  // the page that cannot be understood
  EXPECT_TRUE(frees.addresses.empty());
}

// Cut anywhere, with any bytes changed: an error or entries, and only those that were written.
TEST_F(RecordingReaderTest, SurvivesCutsAndChangedBytesAnywhere) {
  const std::string path = WriteFrees(60'000);
  const std::string content = Load(path);
  std::mt19937_64 random(7);
  for (int round = 0; round < 150; ++round) {
    std::string changed = content.substr(0, round % 3 == 0 ? random() % content.size() : content.size());
    for (uint64_t change = 0; change < random() % 20 && !changed.empty(); ++change) {
      // The first page, and the headers of others, more often.
      const uint64_t page = random() % (changed.size() / kPageBytes + 1) * kPageBytes;
      changed[(page + random() % (random() % 2 == 0 ? 64 : kPageBytes)) % changed.size()] ^=
          static_cast<char>(1 << random() % 8);
    }
    Store(path, changed);
    const Result<RecordingReader> reader = RecordingReader::Open(path);
    if (!reader.ok()) continue;
    const Frees frees = Read(*reader);
    for (size_t free = 0; free < frees.addresses.size(); ++free) {
      ASSERT_LT(frees.addresses[free], 60'000u);
      ASSERT_EQ(frees.times[free], kStart + 10 * static_cast<int64_t>(frees.addresses[free]));
    }
  }
}

// The entries of a page.

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
