// Counts the driver calls of an allocation and a free of a large block whose memory its stream has just freed. Also
// shows that unusual blocks take the long way.
#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/driver/handles.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr int kPairs = 10;

class LargePairs : public ::testing::TestWithParam<commpool_mode> {
 protected:
  void SetUp() override {
    auto options = Named("large");
    options.mode = GetParam();
    pool_ = MakePool(options);
  }
  // What one test submitted is done before the next.
  void TearDown() override {
    if (pool_ != 0) Destroy(pool_);
    const PrimaryContext context = PrimaryContext::Retain(*SharedDriver(), 0).value();
    const ContextGuard current(*SharedDriver(), context);
    EXPECT_EQ(SharedDriver()->cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  }

  void* Allocate(uint64_t bytes, CUstream_st* stream = nullptr) const {
    return testing::Allocate(pool_, bytes, stream);
  }
  commpool_statistics Statistics() const { return StatisticsOf(pool_); }
  void MakeAndFreeSome() const {
    for (int time = 0; time < kPairs; ++time) Free(Allocate(8 * kMiB));
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
        mutex.lock();
        const bool alone = live.insert(block).second;
        mutex.unlock();
        EXPECT_TRUE(alone);
        mutex.lock();
        live.erase(block);
        mutex.unlock();
        Free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Statistics().allocated_blocks.current, 0u);
  EXPECT_EQ(Statistics().allocated_blocks.total, 900u);
}

TEST_P(LargePairs, ServeNothingWhileTheirPoolSleeps) {
  MakeAndFreeSome();
  ExpectOk(commpool_pools_sleep(&pool_, 1, COMMPOOL_KEEP_DISCARD, COMMPOOL_GRAPHS_REFUSED));
  void* block = nullptr;
  EXPECT_EQ(commpool_pool_allocate(pool_, 8 * kMiB, nullptr, &block), COMMPOOL_FAILED_PRECONDITION);
  ExpectOk(commpool_pools_wake(&pool_, 1, COMMPOOL_GRAPHS_REFUSED, COMMPOOL_RETAIN_AS_BEFORE));
  Free(Allocate(8 * kMiB));
}

TEST_P(LargePairs, GiveTheirMemoryBackWithTheirPool) {
  MakeAndFreeSome();
  const uint64_t before = CallCount("cuMemRelease");
  Destroy(std::exchange(pool_, 0));
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
    auto options = Initialised(commpool_scope_options_init);
    options.filter = filter;
    const OpenScope scope(pool_, &options);
    EXPECT_EQ(DriverCallsOf([] { Free(AllocateCaught(8 * kMiB)); }), 0u) << filter;
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
  ExpectOk(commpool_record_stream(shared, reinterpret_cast<CUstream_st*>(2)));
  const uint64_t before = CallCount("cuEventRecord");
  Free(shared);
  EXPECT_EQ(CallCount("cuEventRecord"), before + 1);
  Free(Allocate(8 * kMiB, reinterpret_cast<CUstream_st*>(2)));
  Free(Allocate(8 * kMiB));
}

TEST_P(LargePairs, OutliveTheirPool) {
  Free(Allocate(8 * kMiB));
  void* const block = Allocate(8 * kMiB);
  const commpool_pool gone = std::exchange(pool_, 0);
  Destroy(gone);
  void* none = nullptr;
  EXPECT_EQ(commpool_pool_allocate(gone, 8 * kMiB, nullptr, &none), COMMPOOL_NOT_FOUND);
  const uint64_t before = CallCount("cuMemRelease");
  Free(block);
  EXPECT_GT(CallCount("cuMemRelease"), before) << "nobody comes again for its memory";
}

TEST_P(LargePairs, LeaveTheReleaseAboveAThresholdToTheSlowPath) {
  auto options = Initialised(commpool_pool_options_init);
  options.mode = GetParam();
  options.release_threshold_bytes = 0;
  const OwnedPool pool(options);
  void* const block = testing::Allocate(pool, 8 * kMiB);
  const uint64_t before = CallCount("cuMemRelease");
  Free(block);
  EXPECT_GT(CallCount("cuMemRelease"), before);
}

INSTANTIATE_TEST_SUITE_P(Modes, LargePairs, ::testing::Values(COMMPOOL_MODE_FIXED, COMMPOOL_MODE_EXPANDABLE),
                         [](const auto& named) { return named.param == COMMPOOL_MODE_FIXED ? "Fixed" : "Expandable"; });

}  // namespace
}  // namespace commpool::internal::testing
