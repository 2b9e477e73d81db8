// Out of memory starts a search: the pool's own free memory of other streams, free segments of other pools, then an
// error that lists the holders. Each emulated device has 64 MiB.
#include <cstdlib>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class MemorySearch : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=2,memory=64MiB", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it fills a small machine"); }

  Result<CUdeviceptr> Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    return runtime().AllocateFrom(pool, bytes, stream);
  }
  // Leaves the pool with free memory of `bytes` in one segment.
  void Cache(PoolHandle pool, uint64_t bytes) {
    ASSERT_TRUE(runtime().Free(Allocate(pool, bytes).value()).ok());
    ASSERT_EQ(CountersOf(pool).free_bytes, bytes);
  }
};

TEST_F(MemorySearch, OtherPoolsGiveFreeSegmentsBack) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle needy = Create(Configured("needy"));
  Cache(idle, 40 * kMiB);
  Result<CUdeviceptr> served = Allocate(needy, 50 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 0u);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(MemorySearch, SegmentsWithLiveBlocksStay) {
  const PoolHandle busy = Create(Configured("busy"));
  const PoolHandle needy = Create(Configured("needy"));
  const CUdeviceptr live = Allocate(busy, 40 * kMiB).value();
  Fill(nullptr, live, 4096, 7);
  EXPECT_EQ(Allocate(needy, 50 * kMiB).status().code(), StatusCode::kOutOfMemory);
  ExpectBytes(nullptr, live, 4096, 7);
  EXPECT_TRUE(runtime().Free(live).ok());
}

TEST_F(MemorySearch, PoolsOfOtherDevicesKeepTheirs) {
  const PoolHandle far = Create(Configured("far", 1));
  const PoolHandle needy = Create(Configured("needy"));
  Cache(far, 40 * kMiB);
  EXPECT_EQ(Allocate(needy, 100 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(CountersOf(far).reserved_bytes.current, 40 * kMiB);
}

TEST_F(MemorySearch, OwnSegmentsThatAreTooSmallMakeRoomForALargerOne) {
  const PoolHandle pool = Create(Configured("own"));
  Cache(pool, 40 * kMiB);
  Result<CUdeviceptr> served = Allocate(pool, 60 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 1u);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(MemorySearch, OwnMemoryOfAnotherStreamComesBeforeOtherPoolsMemory) {
  const TestStream stream;
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 20 * kMiB);
  Cache(pool, 40 * kMiB);
  Result<CUdeviceptr> served = Allocate(pool, 30 * kMiB, stream.get());
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 20 * kMiB);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(MemorySearch, TheErrorListsEveryPoolOfTheDeviceTheBiggestFirst) {
  const PoolHandle small = Create(Configured("small"));
  const PoolHandle big = Create(Configured("big"));
  const PoolHandle far = Create(Configured("far", 1));
  const CUdeviceptr in_small = Allocate(small, 2 * kMiB).value();
  const CUdeviceptr in_big = Allocate(big, 40 * kMiB).value();
  const std::string message = Allocate(small, 50 * kMiB).status().message();
  const size_t big_at = message.find("\n  big ");
  const size_t small_at = message.find("\n  small ");
  ASSERT_NE(big_at, std::string::npos) << message;
  ASSERT_NE(small_at, std::string::npos) << message;
  EXPECT_LT(big_at, small_at);
  EXPECT_EQ(message.find("\n  far "), std::string::npos) << message;
  EXPECT_NE(message.find("no memory for 50 MiB"), std::string::npos) << message;
  EXPECT_NE(message.find("40 MiB", big_at), std::string::npos) << message;
  EXPECT_EQ(Get(small).Statistics().failed_allocations, 1u);
  EXPECT_EQ(Get(far).Statistics().failed_allocations, 0u);
  EXPECT_TRUE(runtime().Free(in_small).ok());
  EXPECT_TRUE(runtime().Free(in_big).ok());
}

TEST_F(MemorySearch, TheErrorBeginsWithOneSentence) {
  const PoolHandle named = Create(Configured("gradients"));
  const PoolHandle unnamed = Create(Configured(PoolConfiguration().name.c_str()));
  const CUdeviceptr most = Allocate(named, 40 * kMiB).value();
  for (const auto& [pool, title] : {std::pair(named, "pool gradients"), std::pair(unnamed, "pool")}) {
    const std::string sentence = std::string("no memory for 50 MiB in ") + title + " (vmm, device 0): cuMemCreate of ";
    const std::string message = Allocate(pool, 50 * kMiB).status().message();
    EXPECT_EQ(message.substr(0, sentence.size()), sentence);
  }
  EXPECT_TRUE(runtime().Free(most).ok());
}

TEST_F(MemorySearch, LiveBlocksOfADestroyedPoolAreListedToo) {
  const PoolHandle retired = Create(Configured("retired"));
  const PoolHandle needy = Create(Configured("needy"));
  const CUdeviceptr live = Allocate(retired, 40 * kMiB).value();
  ASSERT_TRUE(runtime().DestroyPool(retired).ok());
  const std::string message = Allocate(needy, 50 * kMiB).status().message();
  EXPECT_NE(message.find("\n  retired "), std::string::npos) << message;
  EXPECT_TRUE(runtime().Free(live).ok());
}

TEST_F(MemorySearch, ASmallRemainderServesARequestThatUsuallyBringsALargerSegment) {
  const PoolHandle big = Create(Configured("big"));
  const PoolHandle pool = Create(Configured("small"));
  const CUdeviceptr in_big = Allocate(big, 54 * kMiB).value();
  Result<CUdeviceptr> served = Allocate(pool, 3 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_TRUE(runtime().Free(*served).ok());
  EXPECT_TRUE(runtime().Free(in_big).ok());
}

class PoolLimit : public MemorySearch {
 protected:
  PoolLimit() {
    PoolConfiguration configuration = Configured("limited");
    configuration.limit_bytes = 4 * kMiB;
    pool_ = Create(configuration);
  }
  PoolHandle pool_ = 0;
};

TEST_F(PoolLimit, BoundsTheSegmentsAndIsNamed) {
  const CUdeviceptr first = Allocate(pool_, 512 * kKiB).value();
  Result<CUdeviceptr> second = Allocate(pool_, 4 * kMiB);
  ASSERT_FALSE(second.ok());
  ExpectFailure(second.status(), StatusCode::kOutOfMemory, "its limit of 4 MiB");
  EXPECT_LE(CountersOf(pool_).reserved_bytes.peak, 4 * kMiB);
  EXPECT_TRUE(runtime().Free(first).ok());
}

TEST_F(PoolLimit, HoldsForReserve) {
  EXPECT_EQ(Get(pool_).mode().Reserve(5 * kMiB).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(Get(pool_).mode().Reserve(1 * kMiB).ok());
}

TEST_F(PoolLimit, ReleasesOwnFreeSegmentsBeforeItRefuses) {
  Cache(pool_, 2 * kMiB);
  Result<CUdeviceptr> served = Allocate(pool_, 4 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_EQ(CountersOf(pool_).reserved_bytes.current, 4 * kMiB);
  EXPECT_TRUE(runtime().Free(*served).ok());
}

TEST_F(PoolLimit, DoesNotTakeOtherPoolsMemory) {
  const PoolHandle idle = Create(Configured("idle"));
  Cache(idle, 20 * kMiB);
  const CUdeviceptr live = Allocate(pool_, kMiB).value();
  EXPECT_EQ(Allocate(pool_, 4 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 20 * kMiB);
  EXPECT_TRUE(runtime().Free(live).ok());
}

TEST_F(PoolLimit, ServesWhatFitsAlthoughTheUsualSegmentWouldNot) {
  // 2 MiB requests usually come with a segment of 8 MiB.
  Result<CUdeviceptr> served = Allocate(pool_, 2 * kMiB);
  ASSERT_TRUE(served.ok()) << served.status().message();
  EXPECT_TRUE(runtime().Free(*served).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
