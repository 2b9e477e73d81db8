// What a recording holds of pools: what came and went, and what the threads' caches did, which is counted.
#include <atomic>
#include <thread>

#include "tests/pool/pool_fixture.h"
#include "tests/recording/recorded_entries.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

using recording::testing::Folder;
using recording::testing::ReadRecording;

class PoolRecording : public PoolTest {
 protected:
  void SetUp() override { ASSERT_TRUE(runtime().Record({.directory = folder_.path()}, 0).ok()); }
  recording::testing::Recording Recorded() {
    runtime().recorder().Stop();
    return ReadRecording(folder_.File());
  }

 private:
  const Folder folder_;
};

TEST_F(PoolRecording, NamesAPoolAndItsEnd) {
  const PoolHandle pool = Create(Configured("activations"));
  Destroy(pool);
  const auto read = Recorded();
  const auto made = read.All<recording::PoolMade>();
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(read.texts.at(made[0].name), "activations");
  EXPECT_EQ(read.texts.at(made[0].kind), "vmm, fixed");
  EXPECT_EQ(made[0].home, 0u);
  EXPECT_EQ(read.All<recording::PoolGone>().size(), 1u);
}

TEST_F(PoolRecording, SaysWhatPoolsOfABudgetShareAndAtMost) {
  runtime().devices().SetBudget("kv", 64 * kMiB);
  PoolConfiguration configuration = Configured("pages");
  configuration.budget = "kv";
  const PoolHandle pages = Create(configuration);
  const PoolHandle scales = Create(configuration);
  Allocate(pages, 16 * kMiB);
  Free(Allocate(scales, 8 * kMiB));
  ASSERT_TRUE(Get(scales).Trim(0).ok());
  Free(Allocate(Create(Configured("outside")), 128 * kMiB));
  const auto read = Recorded();
  const auto made = read.All<recording::PoolMade>();
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(read.texts.at(made[1].budget), "kv");
  EXPECT_EQ(made[2].budget, 0u);
  recording::PoolBytes of_pages, outside;
  for (const auto& bytes : read.All<recording::PoolBytes>()) (bytes.pool == pages ? of_pages : outside) = bytes;
  EXPECT_EQ(of_pages.budget, 16 * kMiB);
  EXPECT_EQ(of_pages.budget_peak, 24 * kMiB);
  EXPECT_EQ(of_pages.budget_limit, 64 * kMiB);
  EXPECT_EQ(outside.budget_limit, 0u);
}

TEST_F(PoolRecording, HasLargeBlocksOneByOneInTheirSegments) {
  const PoolHandle pool = Create(Configured("large"));
  const CUdeviceptr block = Allocate(pool, 5 * kMiB - 100);
  Free(block);
  ASSERT_TRUE(Get(pool).Trim(0).ok());
  const auto read = Recorded();
  const auto segments = read.All<recording::SegmentMade>();
  const auto blocks = read.All<recording::BlockServed>();
  ASSERT_EQ(segments.size(), 1u);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].address, block);
  EXPECT_EQ(blocks[0].requested, 5 * kMiB - 100);
  EXPECT_GE(block, segments[0].address);
  EXPECT_LE(block + blocks[0].bytes, segments[0].address + segments[0].bytes);
  ASSERT_EQ(read.All<recording::BlockFreed>().size(), 1u);
  ASSERT_EQ(read.All<recording::SegmentGone>().size(), 1u);
  EXPECT_EQ(read.All<recording::SegmentGone>()[0].bytes, segments[0].bytes);
}

// A slice counts what is live where it stands among the entries: beyond the blocks that they name there is at most the
// one that a thread has got and not told yet.
TEST_F(PoolRecording, CountsInASliceWhatItsPlaceAmongTheEntriesHas) {
  constexpr uint64_t kBlock = 2 * kMiB;
  const PoolHandle pool = Create(Configured("busy"));
  std::atomic<bool> ended{false};
  std::thread program([&] {
    std::vector<CUdeviceptr> live;
    for (int round = 0; round < 1000; ++round) {
      while (live.size() < 16) live.push_back(Allocate(pool, kBlock));
      for (; !live.empty(); live.pop_back()) Free(live.back());
    }
    ended = true;
  });
  while (!ended.load()) runtime().recorder().Flush();
  program.join();
  uint64_t named = 0;
  int busy_slices = 0;
  for (const auto& recorded : Recorded().entries) {
    const auto* const served = std::get_if<recording::BlockServed>(&recorded.entry);
    if (served != nullptr && served->age == 0) named += kBlock;  // else a chapter tells it again
    if (std::holds_alternative<recording::BlockFreed>(recorded.entry)) named -= kBlock;
    const auto* const bytes = std::get_if<recording::PoolBytes>(&recorded.entry);
    if (bytes == nullptr) continue;
    ASSERT_GE(bytes->allocated, named);
    ASSERT_LE(bytes->allocated, named + kBlock);
    if (bytes->allocated > 0) ++busy_slices;
  }
  EXPECT_GT(busy_slices, 0);
}

// What an expandable pool has is the sum of the ranges that came and went.
TEST_F(PoolRecording, FollowsThePagesOfAnExpandablePool) {
  const PoolHandle pool = CreateWith({.name = "expandable", .mode = Mode::kExpandable});
  std::vector<CUdeviceptr> blocks;
  for (const uint64_t mebibytes : {3, 9, 5, 20}) blocks.push_back(Allocate(pool, mebibytes * kMiB));
  FreeAll({blocks[1], blocks[2]});
  blocks.push_back(Allocate(pool, 30 * kMiB));
  for (const size_t place : {0, 3, 4}) Free(blocks[place]);
  const uint64_t before = Reserved(pool);
  ASSERT_TRUE(Get(pool).Trim(8 * kMiB).ok());
  const uint64_t after = Reserved(pool);
  EXPECT_LT(after, before);
  const auto read = Recorded();
  uint64_t bytes = 0;
  for (const auto& made : read.All<recording::SegmentMade>()) bytes += made.bytes;
  for (const auto& gone : read.All<recording::SegmentGone>()) bytes -= gone.bytes;
  EXPECT_EQ(bytes, after);
}

TEST_F(PoolRecording, CountsWhatCachesServeBySize) {
  const PoolHandle pool = Create(Configured("small"));
  for (int pair = 0; pair < 100; ++pair) Free(Allocate(pool, 700));
  const auto read = Recorded();
  EXPECT_TRUE(read.All<recording::BlockServed>().empty());
  uint64_t served = 0;
  for (const auto& small : read.All<recording::SmallBlocks>()) {
    EXPECT_EQ(small.bytes, 1024u);
    served += small.served;
  }
  EXPECT_EQ(served, 100u);  // the first one came from the pool
  ASSERT_FALSE(read.All<recording::PoolBytes>().empty());
  EXPECT_EQ(read.All<recording::PoolBytes>().back().cached, 1024u);
}

TEST_F(PoolRecording, HasTheBytesOfEachPool) {
  const PoolHandle pool = Create(Configured("bytes"));
  const CUdeviceptr block = Allocate(pool, 5 * kMiB);
  runtime().recorder().Flush();
  Free(block);
  const auto read = Recorded();
  uint64_t most = 0;
  for (const auto& bytes : read.All<recording::PoolBytes>()) most = std::max(most, bytes.requested);
  EXPECT_EQ(most, 5 * kMiB);
  EXPECT_EQ(read.All<recording::PoolBytes>().back().requested, 0u);
}

TEST_F(PoolRecording, ShowsSleepsWakesScopesAndGrowths) {
  const PoolHandle pool = Create(Configured("spans"));
  const CUdeviceptr block = Allocate(pool, 5 * kMiB);
  const ScopeHandle scope = runtime().BeginScope({.pool = runtime().pools().Find(pool).value()}).value();
  EXPECT_EQ(runtime().BeginScopeAtOnce(pool, {}, Exhaustion::kError), 0u) << "nobody would record it";
  ASSERT_TRUE(runtime().EndScope(scope).ok());
  ASSERT_TRUE(SleepAlone(Get(pool), {.keep = Keep::kHost}).ok());
  ASSERT_TRUE(WakeAlone(Get(pool)).ok());
  Free(block);
  const auto read = Recorded();
  std::vector<recording::SpanKind> kinds;
  for (const auto& span : read.All<recording::SpanBegan>()) kinds.push_back(span.kind);
  using recording::SpanKind;
  EXPECT_EQ(kinds, (std::vector{SpanKind::kGrowth, SpanKind::kScope, SpanKind::kSleep, SpanKind::kWake}));
  EXPECT_EQ(read.All<recording::SpanEnded>().size(), kinds.size());
}

TEST_F(PoolRecording, ASearchThatFailsSaysWhoHoldsWhat) {
  EXPECT_FALSE(TryAllocate(CreateWith({.name = "limited", .limit_bytes = 8 * kMiB}), 16 * kMiB).ok());
  const auto read = Recorded();
  bool told = false;
  for (const auto& span : read.All<recording::SpanEnded>()) {
    told = told || (span.failure != 0 && read.texts.at(span.failure).find("limited") != std::string::npos);
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace commpool::internal::testing
