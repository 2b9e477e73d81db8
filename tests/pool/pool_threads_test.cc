// Several threads use one pool: each finds its own data in its blocks, and the books balance afterwards.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 60;

using PoolThreads = PoolTest;

TEST_F(PoolThreads, AllocateFreeTrimAndReadStatistics) {
  const PoolHandle pool = Create(Configured("crowded"));
  const std::array<TestStream, kThreads> streams;
  std::vector<uint64_t> wrong(kThreads * kRounds, 0);
  OnThreads(kThreads, [&](int thread) {
    const ContextGuard guard(driver(), context());
    const CUstream stream = streams[thread];
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t bytes = (round % 7 + 1) * 100 * kKiB;
      const CUdeviceptr address = Allocate(pool, bytes, stream);
      const auto value = static_cast<uint8_t>(thread * kRounds + round);
      Fill(stream, address, 4096, value);
      Compare(stream, address, 4096, value, &wrong[thread * kRounds + round]);
      if (round % 5 == 0) ExpectOk(runtime().RecordStream(address, streams[(thread + 1) % kThreads]));
      Free(address);
      if (round % 20 == 0) ExpectOk(Get(pool).Trim(4 * kMiB).status());
      if (round % 10 == 0) {
        EXPECT_LE(CountersOf(pool).allocated_blocks.current, uint64_t{kThreads});
      }
    }
  });
  Synchronize();
  EXPECT_EQ(wrong, std::vector<uint64_t>(kThreads * kRounds, 0));
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.total, uint64_t{kThreads * kRounds});
}

TEST_F(PoolThreads, ReadNoMoreLiveBlocksThanThereAre) {
  constexpr int kReadings = 3000;
  const PoolHandle pool = Create(Configured("read"));
  std::atomic<bool> over{false};
  const auto work = [&](int thread) {
    for (int round = 0; !over; ++round) {
      Free(Allocate(pool, (round % 7 + 1) * 4 * kKiB));
      if (thread == 0 && round % 64 == 0) ExpectOk(Get(pool).Trim(4 * kMiB).status());
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  uint64_t most_blocks = 0;
  uint64_t most_bytes = 0;
  for (int reading = 0; reading < kReadings; ++reading) {
    const commpool_statistics counters = CountersOf(pool);
    most_blocks = std::max(most_blocks, counters.allocated_blocks.current);
    most_bytes = std::max(most_bytes, counters.allocated_bytes.current);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most_blocks, uint64_t{kThreads});
  EXPECT_LE(most_bytes, kThreads * 28 * kKiB);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 0u);
}

// Hits every moment of the other thread's call: a little later in each round.
TEST_F(PoolThreads, LeaveNothingWhereOneReservesAndOneDestroys) {
  for (int round = 0; round < 500; ++round) {
    const PoolHandle handle = Create(Configured("short-lived"));
    const std::shared_ptr<Pool> pool = runtime().pools().Find(handle).value();
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      while (ready < 2) {
      }
    };
    std::thread other([&] {
      const ContextGuard guard(driver(), context());
      meet();
      static_cast<void>(pool->mode().Reserve(8 * kMiB));
    });
    meet();
    for (std::atomic<int> turn = 0; turn < 20 * round;) ++turn;
    Destroy(handle);
    other.join();
    ASSERT_EQ(pool->Statistics().reserved_bytes.current, 0u) << round;
  }
}

TEST_F(PoolThreads, ScopesRouteEachThreadToItsOwnPool) {
  std::vector<PoolHandle> pools;
  for (int thread = 0; thread < kThreads; ++thread) pools.push_back(Create(Configured("own")));
  OnThreads(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const std::shared_ptr<Pool> own = runtime().pools().Find(pools[thread]).value();
      const ScopeHandle scope = runtime().scopes().Begin({own}).value();
      const CUdeviceptr address = runtime().Allocate(0, kMiB, nullptr).value();
      EXPECT_EQ(runtime().addresses().OwnerOf(address).value(), own);
      Free(address);
      EXPECT_TRUE(runtime().scopes().End(scope).ok());
    }
  });
}

}  // namespace
}  // namespace commpool::internal::testing
