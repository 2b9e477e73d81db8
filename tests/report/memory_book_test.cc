#include "src/report/memory_book.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "src/report/allocation_trace.h"
#include "src/report/snapshot.h"
#include "tests/report/report_fixture.h"

namespace commpool::internal::report {
namespace {

using recording::BlockFreed;

class MemoryBookTest : public ReportFixture {
 protected:
  std::string TraceOf(const std::string& path) {
    std::ostringstream out;
    const Result<TraceCounts> counts = WriteAllocationTrace(out, RecordingReader::Open(path).value());
    if (!counts.ok()) return counts.status().message();
    const std::string text = out.str();
    return text.substr(text.find('\n') + 1);
  }
};

TEST_F(MemoryBookTest, IsATraceWithEachBlockOnce) {
  const std::string path = Record([](RecordingWriter& writer) {
    writer.Write(kStart + 1, Block(0x100000, 513));
    writer.EndChapter();
    writer.Write(kStart + 2, Block(0x101000, 1025, 0, 1, 0x7e00));
    writer.Write(kStart + 3, BlockFreed{0x100000});
    writer.Write(kStart + 4, Block(0x100000, 513));
    writer.Write(kStart + 5, recording::SmallBlocks{.pool = 1, .bytes = 512, .served = 7, .cached = 1});
  });
  EXPECT_EQ(TraceOf(path),
            "a 0 512 0\na 1 1024 1\nf 0\na 2 512 0\n# without 7 allocations that threads' caches served\n");
}

TEST_F(MemoryBookTest, EndsWhatAGapHas) {
  const std::string path = Record([](RecordingWriter& writer) {
    writer.Write(kStart + 1, Block(0x100000, 513));
    writer.Write(kStart + 2, Block(0x101000, 513));
    writer.LosePage();
    writer.Write(kStart + 3, BlockFreed{0x100000});
    writer.Write(kStart + 4, BlockFreed{0x101000});
    writer.EndChapter();
    writer.Write(kStart + 90'000'000, Block(0x100000, 1025));
  });
  EXPECT_EQ(TraceOf(path), "a 0 512 0\na 1 512 0\nf 0\nf 1\na 2 1024 0\n");
}

TEST_F(MemoryBookTest, EndsWhatAGapHasBeforeWhatCameInItAndAfterIt) {
  const std::string path = Record([](RecordingWriter& writer) {
    writer.Write(kStart + 1, Block(0x100000, 513));
    writer.Write(kStart + 2, Block(0x101000, 1025));
    writer.LosePage();
    writer.Write(kStart + 3, BlockFreed{0x100000});
    writer.Write(kStart + 4, Block(0x100200, 2049));
    writer.EndChapter();
    writer.Write(kStart + 90'000'000, Block(0x102000, 4097));
    writer.Write(kStart + 90'000'001, BlockFreed{0x101000});
  });
  EXPECT_EQ(TraceOf(path), "a 0 512 0\na 1 1024 0\nf 0\na 2 2048 0\na 3 4096 0\nf 1\n");
}

// What happened, with its times.
class Written final : public MemoryListener {
 public:
  void Served(int64_t time, Memory& block) override { text << "served " << block.number << " at " << time << "\n"; }
  void Freed(int64_t time, const Memory& block) override { text << "freed " << block.number << " at " << time << "\n"; }

  std::ostringstream text;
};

recording::BlockServed Retold(uint64_t address, uint64_t age) {
  return {.pool = 1, .age = age, .address = address, .bytes = 512, .requested = 512};
}

TEST(MemoryBook, TakesNothingForEndedThatAChapterWithAGapDoesNotRetell) {
  Texts texts;
  Written written;
  MemoryBook book(texts, written);
  book.BeginChapter(100, Before::kNothing);
  book.Take(100, recording::PoolMade{.pool = 1});
  book.Take(110, Retold(0x1000, 0));
  book.Take(120, Retold(0x2000, 0));
  book.Take(130, Retold(0x3000, 0));
  book.BeginChapter(200, Before::kGap);  // its second page is missing
  book.Take(200, Retold(0x1000, 90));
  book.Take(200, Retold(0x4000, 50));
  book.BeginChapter(300, Before::kGap);
  book.Take(300, Retold(0x1000, 190));
  book.Take(300, Retold(0x2000, 180));
  book.Take(300, Retold(0x5000, 50));
  book.Take(310, BlockFreed{0x1000});
  book.Finish();
  EXPECT_EQ(written.text.str(),
            "served 0 at 110\nserved 1 at 120\nserved 2 at 130\nfreed 2 at 130\nserved 3 at 300\nfreed 0 at 310\n");
}

TEST_F(MemoryBookTest, OfNothingIsNoTrace) {
  const std::string path = Record([](RecordingWriter&) {});
  EXPECT_EQ(TraceOf(path), path + " has no block");
}

TEST(ParseFrame, TakesALineApart) {
  const StackFrame frame = ParseFrame("/a b/model.py:12 forward step");
  EXPECT_EQ(frame.file, "/a b/model.py");
  EXPECT_EQ(frame.line, 12);
  EXPECT_EQ(frame.name, "forward step");
  EXPECT_EQ(ParseFrame("at::empty(int)").name, "at::empty(int)");
  EXPECT_EQ(ParseFrame("model.py:12").line, 12);
}

}  // namespace
}  // namespace commpool::internal::report
