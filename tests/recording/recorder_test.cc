// The recorder: entries from many threads, chapters, kills, full disks, forks.
#include "src/library/recording/recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
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
    RecordCalls(0, 20000);
    recorder_.Flush();
    setrlimit(RLIMIT_FSIZE, &before);
  }
  void RecordCalls(uint64_t first, uint64_t end) {
    for (uint64_t call = first; call < end; ++call) recorder_.Record(Call{.pool = 99, .number = call});
  }
  // A pool with a segment and a block.
  static void RecordWeights(const PoolRecorder& pool) {
    pool.Made("weights", "cuda, fixed", 0, {});
    pool.Tell(SegmentMade{.address = 1 << 21, .bytes = 1 << 21});
    pool.Served(1 << 21, 4096, 4096, 5);
  }
  static uint64_t LostIn(const Recording& read) {
    uint64_t lost = 0;
    for (const Lost& some : read.All<Lost>()) lost += some.entries;
    return lost;
  }
  static void OnThreads(uint64_t count, const std::function<void(uint64_t thread)>& work) {
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < count; ++thread) threads.emplace_back(work, thread);
    for (std::thread& thread : threads) thread.join();
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
  OnThreads(kThreads, [&](uint64_t thread) {
    for (uint64_t call = 0; call < kEach; ++call) recorder_.Record(Call{.pool = thread, .number = call});
  });
  std::vector<uint64_t> next(kThreads, 0);
  const Recording read = Stopped();
  const uint64_t lost = LostIn(read);
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
  RecordWeights(pool);
  Span open = pool.Began(SpanKind::kSleep, "sleep");
  RecordCalls(0, 400000);  // far more than the file holds
  const Recording read = Stopped();
  EXPECT_GT(read.entries.front().page, 1u) << "the first page is still there: record more";
  const uint64_t chapter = read.entries.back().chapter;
  std::set<uint64_t> texts;
  for (const auto& one : read.entries) {
    if (one.chapter != chapter) continue;
    if (const auto* text = std::get_if<Text>(&one.entry)) texts.insert(text->number);
    if (const auto* made = std::get_if<PoolMade>(&one.entry)) {
      EXPECT_TRUE(texts.contains(made->name) && texts.contains(made->kind)) << "told before it is named";
      EXPECT_GT(made->age, 0u);
    }
  }
  EXPECT_EQ(read.All<PoolMade>(chapter).size(), 1u);
  EXPECT_EQ(read.All<BlockServed>(chapter).size(), 1u);
  EXPECT_EQ(read.All<SpanBegan>(chapter).size(), 1u);
}

// The writer waits in its sample meanwhile, so that the pages in memory fill up.
TEST_F(RecorderTest, AChapterKnowsWhatHappenedWhileEntriesWereLost) {
  std::atomic<bool> holds{true};
  const RecorderOptions options{.directory = folder_.path(), .limit_bytes = RecordingFile::kFewestPages * kPageBytes};
  ASSERT_TRUE(recorder_.Start(options, [&] { holds.wait(true); }).ok());
  const PoolRecorder pool(recorder_);
  RecordWeights(pool);
  RecordCalls(0, 400000);  // more than the pages in memory hold
  pool.Freed(1 << 21);
  pool.Served(3 << 20, 4096, 4096, 5);
  holds = false;
  holds.notify_all();
  recorder_.Flush();
  RecordCalls(0, 400000);
  const Recording read = Stopped();
  const auto blocks = read.All<BlockServed>(read.entries.back().chapter);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].address, uint64_t{3} << 20);
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
  RecordCalls(0, 400000);
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
  RecordCalls(20000, 40000);
  const Recording read = Stopped();
  EXPECT_GT(LostIn(read), 0u);
  EXPECT_EQ(LostIn(read) + read.All<Call>().size(), 40000u);
}

// A reader skips what follows a missing page, up to the next chapter.
TEST_F(RecorderTest, AChapterBeginsOnceADiskThatWasFullTakesPagesAgain) {
  Start();
  RecordOnAFullDisk();
  RecordCalls(20000, 20001);
  recorder_.Flush();
  RecordCalls(20001, 20002);
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
  OnThreads(4, [&](uint64_t) {
    for (int call = 0; call < 200; ++call) recorder_.Flush();
  });
  recorder_.Stop();
  EXPECT_FALSE(together);
}

TEST_F(RecorderTest, RefusesASecondStart) {
  Start();
  EXPECT_EQ(recorder_.Start({.directory = folder_.path()}, [] {}).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace commpool::internal::recording
