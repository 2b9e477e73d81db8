// Threads' caches: a cached pair makes no other call, and no block in a cache is ever lost, whatever ends first.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <thread>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class ThreadCaches : public PoolTest {
 protected:
  // Blocks of one size, live all at once.
  std::vector<CUdeviceptr> AllocateMany(PoolHandle pool, uint64_t count, uint64_t bytes) {
    std::vector<CUdeviceptr> blocks;
    while (blocks.size() < count) blocks.push_back(Allocate(pool, bytes));
    return blocks;
  }
  uint64_t CachedBytes(PoolHandle pool) { return CountersOf(pool).cached_bytes; }
};

TEST_F(ThreadCaches, ServeAPairWithoutADriverCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Create(Configured("hot"));
  const TestStream stream;
  Free(Allocate(pool, 4096, stream));
  const uint64_t calls = CallCount("*");
  for (int round = 0; round < 100; ++round) Free(Allocate(pool, 4096, stream));
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(ThreadCaches, KeepBlocksOfEachStreamApart) {
  const PoolHandle pool = Create(Configured("apart"));
  const TestStream one;
  const TestStream other;
  const CUdeviceptr first = Allocate(pool, 4096, one);
  Free(first);
  EXPECT_NE(Allocate(pool, 4096, other), first);
  EXPECT_EQ(Allocate(pool, 4096, one), first);
}

TEST_F(ThreadCaches, TakeBlocksThatAnotherThreadAllocated) {
  const PoolHandle pool = Create(Configured("remote"));
  std::vector<CUdeviceptr> blocks;
  std::thread([&] { blocks = AllocateMany(pool, 100, 4096); }).join();
  FreeAll(blocks);
  const commpool_statistics counters = CountersOf(pool);
  EXPECT_EQ(counters.allocated_blocks.current, 0u);
  EXPECT_EQ(counters.allocated_blocks.total, 100u);
  EXPECT_EQ(Get(pool).Trim(0).value(), counters.reserved_bytes.current);
}

TEST_F(ThreadCaches, GiveTheirBlocksBackWithTheirThread) {
  const PoolHandle pool = Create(Configured("ending"));
  std::thread([&] {
    Free(Allocate(pool, 4096));
    EXPECT_EQ(CachedBytes(pool), 4096u);
  }).join();
  EXPECT_EQ(CachedBytes(pool), 0u);
  const commpool_statistics counters = CountersOf(pool);
  EXPECT_EQ(counters.allocated_blocks.current, 0u);
  EXPECT_EQ(counters.requested_bytes.current, 0u);
  EXPECT_EQ(counters.free_bytes, counters.reserved_bytes.current);
}

TEST_F(ThreadCaches, AreEmptiedByAPoolThatRunsOut) {
  const PoolHandle pool = CreateWith({.name = "short", .limit_bytes = 2 * kMiB});
  std::latch cached(1);
  std::latch over(1);
  std::thread holder([&] {
    FreeAll(AllocateMany(pool, 4, 512 * kKiB));
    cached.count_down();
    over.wait();
  });
  cached.wait();
  EXPECT_EQ(CachedBytes(pool), 2 * kMiB);
  AllocateMany(pool, 4, 512 * kKiB);
  EXPECT_EQ(CountersOf(pool).reserved_bytes.peak, 2 * kMiB);
  over.count_down();
  holder.join();
}

// A block that has left a cache and not yet reached its pool: the pool here hears of it only after the reading.
class SlowOwner : public BlockOwner {
 public:
  explicit SlowOwner(Pool& pool) : pool_(pool) {}
  const std::string& name() const override { return pool_.name(); }
  int device() const override { return pool_.device(); }
  bool symmetric() const override { return false; }
  Result<commpool_block> FindBlock(CUdeviceptr address) const override { return pool_.FindBlock(address); }
  Status Free(CUdeviceptr address) override { return pool_.Free(address); }
  Status RecordStream(CUdeviceptr address, StreamKey stream) override { return pool_.RecordStream(address, stream); }
  bool streams_outlive() const override { return pool_.streams_outlive(); }
  void TakeBack(const engine::ReturnedBlocks& returned) override {
    on_their_way = pool_.Statistics();
    pool_.TakeBack(returned);
  }

  commpool_statistics on_their_way{};

 private:
  Pool& pool_;
};

TEST_F(ThreadCaches, CountBlocksOnTheirWayToThePoolAsFree) {
  const PoolHandle pool = Create(Configured("slow"));
  SlowOwner slow(Get(pool));
  const uint64_t blocks = engine::ThreadCache::kMostBytes / engine::kSmallBytes;
  const std::vector<CUdeviceptr> live = AllocateMany(pool, blocks + 1, engine::kSmallBytes);
  for (uint64_t block = 0; block < blocks; ++block) Free(live[block]);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 1u);
  EXPECT_TRUE(runtime().caches().GiveOrMakeRoom(live.back(), slow)) << "a full cache gives half of what it has back";
  EXPECT_EQ(slow.on_their_way.allocated_blocks.current, 1u) << "only the one that is about to be freed";
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

TEST_F(ThreadCaches, RefuseABlockThatTheyHold) {
  const PoolHandle pool = Create(Configured("twice"));
  const CUdeviceptr block = Allocate(pool, 4096);
  Free(block);
  ExpectFailure(runtime().Free(block), StatusCode::kNotFound, "freed already");
  EXPECT_EQ(runtime().RecordStream(block, nullptr).code(), StatusCode::kNotFound);
  EXPECT_EQ(CachedBytes(pool), 4096u);
  EXPECT_FALSE(runtime().FreeCached(block));
}

TEST_F(ThreadCaches, TakeABlockFromOneOfTwoThreadsThatFreeIt) {
  constexpr int kRounds = 200;
  const PoolHandle pool = Create(Configured("raced"));
  std::atomic<CUdeviceptr> block{0};
  std::atomic<int> freed{0};
  std::barrier round_begins(2);
  std::barrier round_ends(2);
  const auto work = [&](bool allocates) {
    for (int round = 0; round < kRounds; ++round) {
      if (allocates) block = Allocate(pool, 4096);
      round_begins.arrive_and_wait();
      if (runtime().Free(block).ok()) ++freed;
      round_ends.arrive_and_wait();
    }
  };
  std::thread other(work, false);
  work(true);
  other.join();
  EXPECT_EQ(freed, kRounds);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

TEST_F(ThreadCaches, EndWithTheirStream) {
  const PoolHandle pool = Create(Configured("released"));
  {
    const TestStream stream;
    const CUdeviceptr block = Allocate(pool, 4096, stream);
    Fill(stream, block, 4096, 1);
    Free(block);
    EXPECT_EQ(CachedBytes(pool), 4096u);
    ASSERT_TRUE(runtime().ReleaseStream(stream).ok());
    EXPECT_EQ(CachedBytes(pool), 0u);
  }
  // The new stream may have the handle of an earlier one.
  const TestStream recycled;
  const CUdeviceptr block = Allocate(pool, 4096, recycled);
  Fill(recycled, block, 4096, 2);
  Free(block);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

TEST_F(ThreadCaches, CountAsFreeInTheStatistics) {
  const PoolHandle pool = Create(Configured("counted"));
  const CUdeviceptr large = Allocate(pool, 3000);
  const CUdeviceptr small = Allocate(pool, 100);
  Free(large);
  EXPECT_EQ(Allocate(pool, 2900), large);  // the same class, another size
  commpool_statistics counters = CountersOf(pool);
  EXPECT_EQ(counters.requested_bytes.current, 3000u);
  EXPECT_EQ(counters.allocated_blocks.current, 2u);
  EXPECT_EQ(counters.allocated_blocks.total, 3u);
  FreeAll({large, small});
  counters = CountersOf(pool);
  EXPECT_EQ(counters.requested_bytes.current, 0u);
  EXPECT_EQ(counters.allocated_bytes.current, 0u);
  EXPECT_EQ(counters.free_bytes, counters.reserved_bytes.current);
}

TEST_F(ThreadCaches, CountEachPairInTheTotals) {
  const PoolHandle pool = Create(Configured("totals"));
  const uint64_t block_bytes = engine::ClassBytes(engine::ClassOf(3000));
  Free(Allocate(pool, 3000));
  Get(pool).blocks().Statistics(BlockStore::Peaks::kForget);
  for (int pair = 0; pair < 4; ++pair) Free(Allocate(pool, 2900));
  Allocate(pool, 2800);
  const commpool_statistics counters = CountersOf(pool);
  EXPECT_EQ(counters.requested_bytes.total, 3000u + 4 * 2900 + 2800);
  EXPECT_EQ(counters.allocated_bytes.total, 6 * block_bytes);
  EXPECT_EQ(counters.allocated_blocks.total, 6u);
  EXPECT_EQ(counters.requested_bytes.current, 2800u);
  EXPECT_GE(counters.requested_bytes.peak, 2800u);
  EXPECT_EQ(counters.allocated_bytes.current, block_bytes);
  EXPECT_EQ(counters.allocated_bytes.peak, block_bytes);
  EXPECT_EQ(counters.allocated_blocks.peak, 1u);
}

TEST_F(ThreadCaches, KeepTheStatisticsOfBlocksThatOthersRecord) {
  const PoolHandle pool = Create(Configured("recorded"));
  const TestStream other;
  Free(Allocate(pool, 3000));
  const CUdeviceptr block = Allocate(pool, 2900);
  ASSERT_TRUE(runtime().RecordStream(block, other).ok());
  EXPECT_EQ(CountersOf(pool).requested_bytes.current, 2900u);
  EXPECT_EQ(Get(pool).FindBlock(block)->requested_bytes, 2900u);
  Free(block);
  EXPECT_EQ(CountersOf(pool).requested_bytes.current, 0u);
  EXPECT_EQ(CachedBytes(pool), 0u);  // waits for the other stream
}

TEST_F(ThreadCaches, TakeBlocksThatTheirOwnStreamRecords) {
  const PoolHandle pool = Create(Configured("own"));
  const TestStream stream;
  const CUdeviceptr block = Allocate(pool, 3000, stream);
  ASSERT_TRUE(runtime().RecordStream(block, stream).ok());
  Free(block);
  EXPECT_GT(CachedBytes(pool), 0u);
}

TEST_F(ThreadCaches, ServeNoForkedChild) {
  const PoolHandle pool = Create(Configured("parent's"));
  const CUdeviceptr live = Allocate(pool, 4096);
  Free(Allocate(pool, 4096));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool served = runtime().AllocateAtOnce(Target::Pool(pool), 4096, nullptr) != 0 || runtime().FreeCached(live);
    _exit(served ? 1 : 0);
  }
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

TEST_F(ThreadCaches, LoseNothingWhenTheirPoolEndsUnderThem) {
  constexpr int kThreads = 3;
  const PoolHandle pool = Create(Configured("ending"));
  std::latch running(kThreads);
  const auto work = [&] {
    bool counted = false;
    for (int round = 0;; ++round) {
      const Result<CUdeviceptr> block = TryAllocate(pool, 512 + round % 8 * 512);
      if (!counted) running.count_down();
      counted = true;
      if (!block.ok()) return;
      Free(*block);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work);
  running.wait();
  Destroy(pool);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace commpool::internal::testing
