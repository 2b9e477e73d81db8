// The file of a recording: its limit, and what is left of it after a fault.
#include "src/library/recording/recording_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <string>

#include "tests/base/expect_status.h"
#include "tests/recording/recorded_entries.h"

namespace commpool::internal::recording {
namespace {

using testing::Folder;
using testing::ReadRecording;
using testing::Recording;

class RecordingFileTest : public ::testing::Test {
 protected:
  RecordingFile Make(uint64_t limit_bytes = 1 << 20) { return MakeIn(folder_.path(), limit_bytes).value(); }
  static Result<RecordingFile> MakeIn(const std::string& directory, uint64_t limit_bytes = 1 << 20) {
    return RecordingFile::Make(
        directory, {.process = 1, .limit_bytes = limit_bytes, .host = "here", .program = "test", .boot = "once"});
  }
  // A page with one entry, the end of a span with the page's number.
  static std::string OnePage(uint64_t number) {
    std::array<char, 64> bytes;
    FieldWriter writer(bytes.data(), bytes.size());
    writer.Write(kKindOf<SpanEnded>);
    writer.Write(uint64_t{0});
    writer.Write(SpanEnded{.span = number});
    return {bytes.data(), writer.used()};
  }
  static PageHeader Header(uint64_t number) { return {.number = number, .chapter = 1, .time = number}; }

  const Folder folder_;
};

TEST_F(RecordingFileTest, SaysWhoseItIs) {
  const RecordingFile file = Make();
  const Recording read = ReadRecording(file.path());
  EXPECT_EQ(read.facts.host, "here");
  EXPECT_EQ(read.facts.limit_bytes, uint64_t{1} << 20);
}

TEST_F(RecordingFileTest, NeverGrowsPastItsLimitAndKeepsTheNewest) {
  RecordingFile file = Make(RecordingFile::kFewestPages * kPageBytes);
  for (uint64_t number = 1; number <= 100; ++number) ASSERT_TRUE(file.Write(Header(number), OnePage(number), 0).ok());
  EXPECT_LE(std::filesystem::file_size(file.path()), RecordingFile::kFewestPages * kPageBytes);
  const auto ends = ReadRecording(file.path()).All<SpanEnded>();
  ASSERT_EQ(ends.size(), RecordingFile::kFewestPages - 1);
  EXPECT_EQ(ends.front().span, 100 - (RecordingFile::kFewestPages - 2));
  EXPECT_EQ(ends.back().span, 100u);
}

TEST_F(RecordingFileTest, APageCanBeWrittenInParts) {
  RecordingFile file = Make();
  const std::string first = OnePage(1);
  ASSERT_TRUE(file.Write(Header(1), first, 0).ok());
  EXPECT_EQ(ReadRecording(file.path()).All<SpanEnded>().size(), 1u);
  ASSERT_TRUE(file.Write(Header(1), first + OnePage(2), first.size()).ok());
  EXPECT_EQ(ReadRecording(file.path()).All<SpanEnded>().size(), 2u);
}

TEST_F(RecordingFileTest, APageOfWhichOnlyTheEntriesWereWrittenIsAsItWasBefore) {
  RecordingFile file = Make();
  const std::string first = OnePage(1);
  ASSERT_TRUE(file.Write(Header(1), first, 0).ok());
  {
    std::fstream other(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    other.seekp(static_cast<std::streamoff>(kPageBytes + sizeof(PageHeader) + first.size()));
    other << OnePage(2);
  }
  const Recording read = ReadRecording(file.path());
  EXPECT_EQ(read.All<SpanEnded>().size(), 1u);
  EXPECT_EQ(read.damaged_pages, 0u);
}

TEST_F(RecordingFileTest, APathThatIsNoDirectoryIsRefused) {
  const std::string path = folder_.path() + "/file";
  std::ofstream(path) << "text";
  ExpectFailure(MakeIn(path).status(), StatusCode::kInvalidArgument, path);
}

TEST_F(RecordingFileTest, ADirectoryWithAnyNameIsOneLineOfAnError) {
  const auto refused = MakeIn("/no/\n\x1b[31m");
  EXPECT_NE(refused.status().message().find("/no/\\n\\x1b[31m"), std::string::npos) << refused.status().message();
}

TEST_F(RecordingFileTest, MakesTheDirectoryWhereItIsMissing) { ExpectOk(MakeIn(folder_.path() + "/new").status()); }

// The system refuses a write past a limit as it refuses one to a full disk.
TEST_F(RecordingFileTest, AFullDiskIsAnErrorAndWhatWasWrittenStays) {
  RecordingFile file = Make();
  ASSERT_TRUE(file.Write(Header(1), OnePage(1), 0).ok());
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit two_pages = {2 * kPageBytes, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &two_pages);
  const Status full = file.Write(Header(2), OnePage(2), 0);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(full.code(), StatusCode::kOutOfMemory) << full.message();
  EXPECT_EQ(ReadRecording(file.path()).All<SpanEnded>().size(), 1u);
}

}  // namespace
}  // namespace commpool::internal::recording
