// Counts the driver calls of an allocation and a free of a large block whose memory its stream has just freed. Also
// shows that unusual blocks take the long way.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "src/library/driver/handles.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int kPairs = 10;

class LargePairs : public ::testing::TestWithParam<commpool_mode> {
 protected:
  void SetUp() override {
    commpool_pool_options options;
    commpool_pool_options_init(&options);
    options.name = "large";
    options.mode = GetParam();
    ASSERT_EQ(commpool_pool_create(&options, &pool_), COMMPOOL_OK) << commpool_last_error();
  }
  // What one test submitted is done before the next.
  void TearDown() override {
    if (pool_ != 0) {
      EXPECT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK) << commpool_last_error();
    }
    const PrimaryContext context = PrimaryContext::Retain(*SharedDriver(), 0).value();
    const ContextGuard current(*SharedDriver(), context);
    EXPECT_EQ(SharedDriver()->cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  void* Allocate(uint64_t bytes, CUstream_st* stream = nullptr) const {
    void* block = nullptr;
    EXPECT_EQ(commpool_pool_allocate(pool_, bytes, stream, &block), COMMPOOL_OK) << commpool_last_error();
    return block;
  }
  static void Free(void* block) { EXPECT_EQ(commpool_free(block), COMMPOOL_OK) << commpool_last_error(); }
  commpool_statistics Statistics() const {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    EXPECT_EQ(commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics), COMMPOOL_OK) << commpool_last_error();
    return statistics;
  }

  template <typename Pair>
  static uint64_t DriverCallsOf(Pair pair) {
    pair();  // makes the memory, and fills the thread's cache
    const uint64_t calls = CallCount("*");
    for (int time = 0; time < kPairs; ++time) pair();
    return CallCount("*") - calls;
  }

  commpool_pool pool_ = 0;
};

TEST_P(LargePairs, MakeNoDriverCall) {
  for (const uint64_t bytes : {kMiB + 1, 2 * kMiB, 3 * kMiB, 8 * kMiB, 64 * kMiB, 1024 * kMiB}) {
    EXPECT_EQ(DriverCallsOf([&] { Free(Allocate(bytes)); }), 0u) << bytes;
  }
}

TEST_P(LargePairs, MakeNoneWhereTwoComeAndGoInTurn) {
  const uint64_t driver_calls = DriverCallsOf([&] {
    void* const first = Allocate(8 * kMiB);
    void* const second = Allocate(5 * kMiB);
    Free(first);
    Free(second);
  });
  EXPECT_EQ(driver_calls, 0u);
}

TEST_P(LargePairs, AreServedToOneOwnerAtATimeOnAnyThread) {
  std::mutex mutex;
  std::set<void*> live;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      for (int time = 0; time < 300; ++time) {
        void* const block = Allocate(8 * kMiB);
        bool alone = false;
        {
          const std::lock_guard<std::mutex> lock(mutex);
          alone = live.insert(block).second;
        }
        EXPECT_TRUE(alone);
        {
          const std::lock_guard<std::mutex> lock(mutex);
          live.erase(block);
        }
        Free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Statistics().allocated_blocks.current, 0u);
  EXPECT_EQ(Statistics().allocated_blocks.total, 900u);
}

TEST_P(LargePairs, ServeNothingWhileTheirPoolSleeps) {
  for (int time = 0; time < kPairs; ++time) Free(Allocate(8 * kMiB));
  ASSERT_EQ(commpool_pools_sleep(&pool_, 1, COMMPOOL_KEEP_DISCARD, COMMPOOL_GRAPHS_REFUSED), COMMPOOL_OK)
      << commpool_last_error();
  void* block = nullptr;
  EXPECT_EQ(commpool_pool_allocate(pool_, 8 * kMiB, nullptr, &block), COMMPOOL_FAILED_PRECONDITION);
  ASSERT_EQ(commpool_pools_wake(&pool_, 1, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE), COMMPOOL_OK)
      << commpool_last_error();
  Free(Allocate(8 * kMiB));
}

TEST_P(LargePairs, GiveTheirMemoryBackWithTheirPool) {
  for (int time = 0; time < kPairs; ++time) Free(Allocate(8 * kMiB));
  const uint64_t before = CallCount("cuMemRelease");
  ASSERT_EQ(commpool_pool_destroy(std::exchange(pool_, 0)), COMMPOOL_OK) << commpool_last_error();
  EXPECT_GT(CallCount("cuMemRelease"), before);
}

// Blocks that the program keeps come from no cache.
TEST_P(LargePairs, MakeNoneLikeSmallBlocksThatNoCacheHas) {
  std::vector<void*> kept;
  const uint64_t driver_calls = DriverCallsOf([&] { kept.push_back(Allocate(1000)); });
  EXPECT_EQ(driver_calls, 0u);
  EXPECT_EQ(Statistics().allocated_blocks.current, kPairs + 1u);
  EXPECT_EQ(Statistics().requested_bytes.current, 1000u * (kPairs + 1));
  for (void* const block : kept) Free(block);
  EXPECT_EQ(Statistics().allocated_blocks.current, 0u);
}

TEST_P(LargePairs, MakeNoneInScopes) {
  for (const commpool_filter filter : {COMMPOOL_FILTER_THREAD, COMMPOOL_FILTER_STREAM, COMMPOOL_FILTER_PROCESS}) {
    commpool_scope_options options;
    commpool_scope_options_init(&options);
    options.filter = filter;
    commpool_scope scope = 0;
    ASSERT_EQ(commpool_scope_begin(pool_, &options, &scope), COMMPOOL_OK) << commpool_last_error();
    const uint64_t driver_calls = DriverCallsOf([] {
      void* block = nullptr;
      ASSERT_EQ(commpool_allocate(0, 8 * kMiB, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
      Free(block);
    });
    EXPECT_EQ(commpool_scope_end(scope), COMMPOOL_OK);
    EXPECT_EQ(driver_calls, 0u) << filter;
  }
  EXPECT_EQ(Statistics().allocated_blocks.total, 3u * (kPairs + 1)) << "the scopes' pool served them";
}

TEST_P(LargePairs, AreCountedAsAnyBlock) {
  void* const kept = Allocate(5 * kMiB);
  for (int time = 0; time < kPairs; ++time) Free(Allocate(8 * kMiB - 100));
  const commpool_statistics statistics = Statistics();
  EXPECT_EQ(statistics.requested_bytes.current, 5 * kMiB);
  EXPECT_EQ(statistics.allocated_bytes.current, 5 * kMiB);
  EXPECT_EQ(statistics.allocated_blocks.current, 1u);
  EXPECT_EQ(statistics.allocated_blocks.total, 1u + kPairs);
  EXPECT_EQ(statistics.requested_bytes.total, 5 * kMiB + kPairs * (8 * kMiB - 100));
  EXPECT_EQ(statistics.allocated_bytes.peak, 13 * kMiB);
  Free(kept);
}

TEST_P(LargePairs, AreFreedOnceByAnyThread) {
  for (int time = 0; time < 3; ++time) {
    void* const block = Allocate(8 * kMiB);
    std::thread([&] { Free(block); }).join();
    EXPECT_EQ(commpool_free(block), COMMPOOL_NOT_FOUND);
    std::thread([&] { EXPECT_EQ(commpool_free(block), COMMPOOL_NOT_FOUND); }).join();
  }
  int foreign = 0;
  EXPECT_EQ(commpool_free(&foreign), COMMPOOL_NOT_FOUND);
  void* const block = Allocate(8 * kMiB);
  EXPECT_EQ(commpool_free(static_cast<char*>(block) + 2 * kMiB), COMMPOOL_NOT_FOUND) << "inside a block";
  Free(block);
}

// Memory that another stream used waits for that stream, on the short way too.
TEST_P(LargePairs, ThatAnotherStreamUsedOweItAFence) {
  Free(Allocate(8 * kMiB));
  void* const shared = Allocate(8 * kMiB);
  ASSERT_EQ(commpool_record_stream(shared, reinterpret_cast<CUstream_st*>(2)), COMMPOOL_OK) << commpool_last_error();
  const uint64_t before = CallCount("cuEventRecord");
  Free(shared);
  EXPECT_EQ(CallCount("cuEventRecord"), before + 1);
  void* const other_stream = Allocate(8 * kMiB, reinterpret_cast<CUstream_st*>(2));
  Free(other_stream);
  Free(Allocate(8 * kMiB));
}

TEST_P(LargePairs, OutliveTheirPool) {
  Free(Allocate(8 * kMiB));
  void* const block = Allocate(8 * kMiB);
  ASSERT_EQ(commpool_pool_destroy(pool_), COMMPOOL_OK) << commpool_last_error();
  const commpool_pool gone = std::exchange(pool_, 0);
  void* none = nullptr;
  EXPECT_EQ(commpool_pool_allocate(gone, 8 * kMiB, nullptr, &none), COMMPOOL_NOT_FOUND);
  const uint64_t before = CallCount("cuMemRelease");
  Free(block);
  EXPECT_GT(CallCount("cuMemRelease"), before) << "nobody comes again for its memory";
}

TEST_P(LargePairs, LeaveTheReleaseAboveAThresholdToTheSlowPath) {
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.mode = GetParam();
  options.release_threshold_bytes = 0;
  commpool_pool pool = 0;
  ASSERT_EQ(commpool_pool_create(&options, &pool), COMMPOOL_OK) << commpool_last_error();
  void* block = nullptr;
  ASSERT_EQ(commpool_pool_allocate(pool, 8 * kMiB, nullptr, &block), COMMPOOL_OK) << commpool_last_error();
  const uint64_t before = CallCount("cuMemRelease");
  Free(block);
  EXPECT_GT(CallCount("cuMemRelease"), before);
  EXPECT_EQ(commpool_pool_destroy(pool), COMMPOOL_OK);
}

INSTANTIATE_TEST_SUITE_P(Modes, LargePairs, ::testing::Values(COMMPOOL_MODE_FIXED, COMMPOOL_MODE_EXPANDABLE),
                         [](const auto& named) { return named.param == COMMPOOL_MODE_FIXED ? "Fixed" : "Expandable"; });

}  // namespace
}  // namespace commpool::internal::testing
