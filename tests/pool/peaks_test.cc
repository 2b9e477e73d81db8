// Peaks of memory in use, without blocks in threads' caches. With one thread they are exact; with several threads they
// may be too high, by at most what the caches hold.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Peaks : public PoolTest {
 protected:
  CUdeviceptr Allocate(uint64_t bytes, CUstream stream = nullptr) {
    CUdeviceptr address = runtime().AllocateAtOnce(Target::Pool(pool_), bytes, stream);
    return address != 0 ? address : PoolTest::Allocate(pool_, bytes, stream);
  }
  void Free(CUdeviceptr address) {
    if (!runtime().FreeCached(address)) PoolTest::Free(address);
  }
  void ExpectPeaksOfABlock(uint64_t requested, uint64_t bytes) {
    const commpool_statistics counters = CountersOf(pool_);
    EXPECT_EQ(counters.requested_bytes.peak, requested);
    EXPECT_EQ(counters.allocated_bytes.peak, bytes);
    EXPECT_EQ(counters.allocated_blocks.peak, 1u);
  }
  engine::Counters Forget() { return Get(pool_).blocks().Statistics(BlockStore::Peaks::kForget); }

  const PoolHandle pool_ = Create(Configured("peaks"));
};

TEST_F(Peaks, LeaveOutBlocksInCaches) {
  Free(Allocate(100000));
  Free(Allocate(99000));
  ExpectPeaksOfABlock(100000, 100352);
}

TEST_F(Peaks, AreReadBeforeTheyAreForgotten) {
  Free(Allocate(4 * kMiB));
  EXPECT_EQ(Forget().allocated_bytes.peak, 4 * kMiB);
  EXPECT_EQ(Forget().allocated_bytes.peak, 0u);
}

TEST_F(Peaks, AreThoseOfPairsThatCachesServe) {
  Free(Allocate(1000));
  Free(Allocate(100000));
  Forget();
  const CUdeviceptr first = Allocate(1000);
  const CUdeviceptr second = Allocate(100000);
  for (const CUdeviceptr block : {first, second}) Free(block);
  Free(Allocate(4 * kMiB));  // freed to the pool
  Forget();
  Free(Allocate(1024));
  ExpectPeaksOfABlock(1024, 1024);
}

TEST_F(Peaks, AreKeptWhenCachesAreEmptied) {
  const TestStream stream;
  const CUdeviceptr first = Allocate(100000, stream);
  Free(first);
  ASSERT_NE(Allocate(100000, stream), 0u);
  Free(first);
  std::thread([&] { Free(Allocate(90000)); }).join();
  Get(pool_).Trim(0).value();
  Free(Allocate(99000, stream));
  ASSERT_TRUE(runtime().ReleaseStream(stream).ok());
  EXPECT_LE(CountersOf(pool_).requested_bytes.peak, 100000u + 90000);
  EXPECT_GE(CountersOf(pool_).requested_bytes.peak, 100000u);
  EXPECT_EQ(CountersOf(pool_).requested_bytes.current, 0u);
}

// Blocks of any size, from caches and from the pool; all free memory goes back to the driver in between.
TEST_F(Peaks, OfOneThreadAreExact) {
  constexpr uint64_t kSizes[] = {1, 512, 513, 1000, 1024, 4096, 50000, 100000, 131072, 600000, 3 * kMiB, 5 * kMiB};
  struct Block {
    CUdeviceptr address = 0;
    uint64_t requested = 0;
    uint64_t bytes = 0;
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Block> live;
    Forget();
    Block now = {};
    Block peak = {};
    for (int call = 0; call < 3000; ++call) {
      const uint64_t choice = random() % 100;
      if (choice < 52 && live.size() < 40) {
        Block block{0, kSizes[random() % std::size(kSizes)], 0};
        block.address = Allocate(block.requested);
        block.bytes = Get(pool_).FindBlock(block.address)->bytes;
        live.push_back(block);
        now.requested += block.requested;
        now.bytes += block.bytes;
      } else if (!live.empty() && choice < 97) {
        const size_t place = random() % live.size();
        Free(live[place].address);
        now.requested -= live[place].requested;
        now.bytes -= live[place].bytes;
        live.erase(live.begin() + static_cast<int64_t>(place));
      } else if (choice == 97) {
        Get(pool_).Trim(0).value();
      } else if (random() % 4 == 0) {
        Forget();
        peak = {0, now.requested, now.bytes};
      }
      peak.requested = std::max(peak.requested, now.requested);
      peak.bytes = std::max(peak.bytes, now.bytes);
      peak.address = std::max<uint64_t>(peak.address, live.size());
      if (random() % 50 != 0) continue;
      const commpool_statistics counters = CountersOf(pool_);
      ASSERT_EQ(counters.requested_bytes.current, now.requested) << seed << ", " << call;
      ASSERT_EQ(counters.requested_bytes.peak, peak.requested) << seed << ", " << call;
      ASSERT_EQ(counters.allocated_bytes.peak, peak.bytes) << seed << ", " << call;
    }
    for (const Block& block : live) Free(block.address);
  }
}

TEST_F(Peaks, OfSeveralThreadsAreNeverTooLowAndAtMostTheirCachesTooHigh) {
  constexpr int kThreads = 4;
  constexpr size_t kMostLive = 12;
  constexpr uint64_t kMost = 64 * kKiB;
  std::atomic<uint64_t> at_least{0};  // counts a block while it is surely in use
  std::atomic<uint64_t> at_most{0};   // counts a block while it may be in use
  std::atomic<uint64_t> least_peak{0};
  std::atomic<uint64_t> most_peak{0};
  const auto raise = [](std::atomic<uint64_t>& peak, uint64_t to) {
    for (uint64_t was = peak; was < to && !peak.compare_exchange_weak(was, to);) {
    }
  };
  OnThreads(kThreads, [&](int thread) {
    std::mt19937_64 random(static_cast<uint64_t>(thread));
    std::vector<std::pair<CUdeviceptr, uint64_t>> live;
    for (int call = 0; call < 4000; ++call) {
      if (random() % 2 == 0 && live.size() < kMostLive) {
        const uint64_t bytes = (random() % (kMost / 512) + 1) * 512;
        raise(most_peak, at_most += bytes);
        live.emplace_back(Allocate(bytes), bytes);
        raise(least_peak, at_least += bytes);
      } else if (!live.empty()) {
        const auto [address, bytes] = live.back();
        live.pop_back();
        at_least -= bytes;
        Free(address);
        at_most -= bytes;
      }
      if (random() % 500 == 0) Get(pool_).Trim(0).value();
    }
    for (const auto& [address, bytes] : live) Free(address);
  });
  const commpool_statistics counters = CountersOf(pool_);
  EXPECT_EQ(counters.allocated_bytes.current, 0u);
  EXPECT_GE(counters.allocated_bytes.peak, least_peak);
  EXPECT_LE(counters.allocated_bytes.peak, most_peak + kThreads * engine::ThreadCache::kMostBytes);
  EXPECT_GE(counters.requested_bytes.peak, least_peak);
}

}  // namespace
}  // namespace commpool::internal::testing
