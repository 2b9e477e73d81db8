// The recorder: entries from many threads, chapters, kills, full disks, forks.
#include "src/library/recording/recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "tests/recording/recorded_entries.h"

namespace commpool::internal::recording {
namespace {

using testing::Folder;
using testing::ReadRecording;
using testing::Recording;

class RecorderTest : public ::testing::Test {
 protected:
  void Start(uint64_t limit_bytes = 64 << 20) {
    ASSERT_TRUE(recorder_.Start({.directory = folder_.path(), .limit_bytes = limit_bytes}, [] {}).ok());
  }
  Recording Stopped() {
    recorder_.Stop();
    return ReadRecording(folder_.File());
  }

  // Records the first 20,000 calls while the disk has room for one page.
  void RecordOnAFullDisk() {
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit one_page = {kPageBytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &one_page);
    for (uint64_t call = 0; call < 20000; ++call) recorder_.Record(Call{.pool = 1, .number = call});
    recorder_.Flush();
    setrlimit(RLIMIT_FSIZE, &before);
  }

  const Folder folder_;
  Recorder recorder_;
};

TEST_F(RecorderTest, IsOffUntilItIsStarted) {
  EXPECT_FALSE(recorder_.on());
  recorder_.Record(PoolGone{1});
  EXPECT_EQ(folder_.File(), "");
}

TEST_F(RecorderTest, WritesEntriesInTheirOrderWithTheirTexts) {
  Start();
  const PoolRecorder pool(recorder_);
  pool.Made("activations", "vmm, fixed", 1, {});
  pool.Tell(SegmentMade{.address = 1 << 21, .bytes = 1 << 21});
  pool.Served(1 << 21, 4096, 4000, 0);
  pool.Freed(1 << 21);
  const Recording read = Stopped();
  ASSERT_EQ(read.All<PoolMade>().size(), 1u);
  EXPECT_EQ(read.texts.at(read.All<PoolMade>()[0].name), "activations");
  EXPECT_EQ(read.texts.at(read.All<PoolMade>()[0].kind), "vmm, fixed");
  EXPECT_EQ(read.All<BlockServed>()[0].requested, 4000u);
  EXPECT_EQ(read.All<BlockFreed>()[0].address, uint64_t{1} << 21);
  for (size_t place = 1; place < read.entries.size(); ++place) {
    EXPECT_GE(read.entries[place].time, read.entries[place - 1].time);
  }
}

TEST_F(RecorderTest, FreesOfBlocksThatWereNotRecordedAreNot) {
  Start();
  PoolRecorder(recorder_).Freed(64);
  EXPECT_TRUE(Stopped().All<BlockFreed>().empty());
}

TEST_F(RecorderTest, ThreadsLoseNothing) {
  Start();
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 20000;
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t call = 0; call < kEach; ++call) recorder_.Record(Call{.pool = thread, .number = call});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> next(kThreads, 0);
  uint64_t lost = 0;
  const Recording read = Stopped();
  for (const Lost& some : read.All<Lost>()) lost += some.entries;
  for (const Call& call : read.All<Call>()) {
    EXPECT_TRUE(lost > 0 || call.number == next[call.pool]) << call.number;
    ++next[call.pool];
  }
  uint64_t found = lost;  // a disk may be slower than these threads
  for (const uint64_t count : next) found += count;
  EXPECT_EQ(found, kThreads * kEach);
}

TEST_F(RecorderTest, AChapterRetellsWhatLivesAndItsTexts) {
  Start(RecordingFile::kFewestPages * kPageBytes);
  const PoolRecorder pool(recorder_);
  pool.Made("weights", "cuda, fixed", 0, {});
  pool.Tell(SegmentMade{.address = 1 << 21, .bytes = 1 << 21});
  pool.Served(1 << 21, 4096, 4096, 5);
  Span open = pool.Began(SpanKind::kSleep, "sleep");
  // Far more than the file holds.
  for (uint64_t call = 0; call < 400000; ++call) recorder_.Record(Call{.pool = 99, .number = call});
  const Recording read = Stopped();
  EXPECT_GT(read.entries.front().page, 1u) << "the first page is still there: record more";
  const uint64_t chapter = read.entries.back().chapter;
  std::set<uint64_t> texts;
  uint64_t pools = 0;
  uint64_t blocks = 0;
  uint64_t spans = 0;
  for (const auto& one : read.entries) {
    if (one.chapter != chapter) continue;
    if (const auto* text = std::get_if<Text>(&one.entry)) texts.insert(text->number);
    if (const auto* made = std::get_if<PoolMade>(&one.entry)) {
      ++pools;
      EXPECT_TRUE(texts.contains(made->name) && texts.contains(made->kind)) << "told before it is named";
      EXPECT_GT(made->age, 0u);
    }
    if (std::holds_alternative<BlockServed>(one.entry)) ++blocks;
    if (std::holds_alternative<SpanBegan>(one.entry)) ++spans;
  }
  EXPECT_EQ(pools, 1u);
  EXPECT_EQ(blocks, 1u);
  EXPECT_EQ(spans, 1u);
}

// The writer waits in its sample meanwhile, so that the pages in memory fill up.
TEST_F(RecorderTest, AChapterKnowsWhatHappenedWhileEntriesWereLost) {
  std::atomic<bool> holds{true};
  const RecorderOptions options{.directory = folder_.path(), .limit_bytes = RecordingFile::kFewestPages * kPageBytes};
  ASSERT_TRUE(recorder_.Start(options, [&] { holds.wait(true); }).ok());
  const PoolRecorder pool(recorder_);
  pool.Made("weights", "cuda, fixed", 0, {});
  pool.Tell(SegmentMade{.address = 1 << 21, .bytes = 1 << 21});
  pool.Served(1 << 21, 4096, 4096, 5);
  const auto call_often = [&] {
    for (uint64_t call = 0; call < 400000; ++call) recorder_.Record(Call{.pool = 99, .number = call});
  };
  call_often();  // more than the pages in memory hold
  pool.Freed(1 << 21);
  pool.Served(3 << 20, 4096, 4096, 5);
  holds = false;
  holds.notify_all();
  recorder_.Flush();
  call_often();
  const Recording read = Stopped();
  const uint64_t chapter = read.entries.back().chapter;
  std::set<uint64_t> blocks;
  for (const auto& one : read.entries) {
    if (one.chapter != chapter) continue;
    if (const auto* served = std::get_if<BlockServed>(&one.entry)) blocks.insert(served->address);
  }
  EXPECT_EQ(blocks, std::set<uint64_t>{3 << 20});
}

TEST_F(RecorderTest, ASpanEndsWithItsFailure) {
  Start();
  const PoolRecorder pool(recorder_);
  {
    Span span = pool.Began(SpanKind::kWake, "wake");
    EXPECT_FALSE(span.Ended(Status(StatusCode::kOutOfMemory, "no room")).ok());
  }
  { const Span ends_by_itself = pool.Began(SpanKind::kSearch, "search", 4096); }
  const Recording read = Stopped();
  ASSERT_EQ(read.All<SpanEnded>().size(), 2u);
  EXPECT_EQ(read.texts.at(read.All<SpanEnded>()[0].failure), "no room");
  EXPECT_EQ(read.All<SpanEnded>()[1].failure, 0u);
  EXPECT_EQ(read.All<SpanBegan>()[1].number, 4096u);
}

TEST_F(RecorderTest, ASliceTellsOnlyWhatHasChanged) {
  Start();
  PoolRecorder pool(recorder_);
  for (int slice = 0; slice < 3; ++slice) {
    pool.Bytes({.reserved = 4096});
    pool.Small(512, 7, 1);
  }
  pool.Small(512, 9, 0);
  const Recording read = Stopped();
  EXPECT_EQ(read.All<PoolBytes>().size(), 1u);
  ASSERT_EQ(read.All<SmallBlocks>().size(), 2u);
  EXPECT_EQ(read.All<SmallBlocks>()[1].served, 2u);
}

TEST_F(RecorderTest, EachChapterTellsTheCountersOnce) {
  Start(RecordingFile::kFewestPages * kPageBytes);
  PoolRecorder pool(recorder_);
  const auto slice = [&] {
    pool.Bytes({.reserved = 4096});
    pool.Small(512, 7, 3);
  };
  slice();
  for (uint64_t call = 0; call < 400000; ++call) recorder_.Record(Call{.pool = 99, .number = call});
  slice();
  slice();
  const Recording read = Stopped();
  EXPECT_GT(read.entries.front().page, 1u) << "the first page is still there: record more";
  EXPECT_EQ(read.All<PoolBytes>().size(), 1u);
  ASSERT_EQ(read.All<SmallBlocks>().size(), 1u);
  EXPECT_EQ(read.All<SmallBlocks>()[0].served, 0u);
  EXPECT_EQ(read.All<SmallBlocks>()[0].cached, 3u);
}

// The child tells that it has flushed, goes on recording, and is killed.
TEST_F(RecorderTest, IsWholeAfterAKillUpToWhatWasWritten) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Recorder recorder;
    if (!recorder.Start({.directory = folder_.path()}, [] {}).ok()) _exit(1);
    for (uint64_t call = 0; call < 1000; ++call) recorder.Record(Call{.number = call});
    recorder.Flush();
    static_cast<void>(write(told[1], "x", 1));
    for (uint64_t call = 1000;; ++call) recorder.Record(Call{.number = call});
  }
  char byte = 0;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  close(told[0]);
  close(told[1]);
  const std::vector<Call> calls = ReadRecording(folder_.File()).All<Call>();
  ASSERT_GE(calls.size(), 1000u);
  for (uint64_t call = 0; call < 1000; ++call) EXPECT_EQ(calls[call].number, call);
}

TEST_F(RecorderTest, AFullDiskLosesEntriesAndTellsHowManyWhenThereIsRoom) {
  Start();
  RecordOnAFullDisk();
  for (uint64_t call = 20000; call < 40000; ++call) recorder_.Record(Call{.pool = 1, .number = call});
  const Recording read = Stopped();
  uint64_t lost = 0;
  for (const Lost& some : read.All<Lost>()) lost += some.entries;
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(lost + read.All<Call>().size(), 40000u);
}

// A reader skips what follows a missing page, up to the next chapter.
TEST_F(RecorderTest, AChapterBeginsOnceADiskThatWasFullTakesPagesAgain) {
  Start();
  RecordOnAFullDisk();
  recorder_.Record(Call{.pool = 1, .number = 20000});
  recorder_.Flush();
  recorder_.Record(Call{.pool = 1, .number = 20001});
  const Recording read = Stopped();
  std::set<uint64_t> pages;
  for (const auto& one : read.entries) pages.insert(one.page);
  EXPECT_TRUE(pages.contains(read.entries.back().chapter)) << "the chapter's first page is missing";
}

TEST_F(RecorderTest, AForkedChildRecordsNothing) {
  Start();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool on = recorder_.on();
    recorder_.Record(Call{.number = 1});
    recorder_.Flush();
    recorder_.Stop();
    _exit(on ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  recorder_.Record(Call{.number = 2});
  EXPECT_EQ(Stopped().All<Call>().size(), 1u);
}

TEST_F(RecorderTest, SamplesEachSliceAndSeldomerWhereThatTakesLong) {
  using std::chrono::milliseconds;
  const Recorder::Clock::time_point began{};
  EXPECT_EQ(Recorder::NextSample(began, began + milliseconds(1)), began + Recorder::kSlice);
  EXPECT_EQ(Recorder::NextSample(began, began + milliseconds(50)), began + milliseconds(50 + 20 * 50));
}

// A process may exit at the end of a slice.
TEST_F(RecorderTest, TakesOneSampleAtATime) {
  std::atomic<int> inside{0};
  std::atomic<bool> together{false};
  const auto sample = [&] {
    if (inside.fetch_add(1) != 0) together = true;
    std::this_thread::yield();
    inside.fetch_sub(1);
  };
  ASSERT_TRUE(recorder_.Start({.directory = folder_.path()}, sample).ok());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int call = 0; call < 200; ++call) recorder_.Flush();
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder_.Stop();
  EXPECT_FALSE(together);
}

TEST_F(RecorderTest, RefusesASecondStart) {
  Start();
  EXPECT_EQ(recorder_.Start({.directory = folder_.path()}, [] {}).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool::internal::recording
