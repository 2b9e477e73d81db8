// The steps of an allocation before it fails, in order: a later step never runs where an earlier one serves.
#include <cstdlib>
#include <latch>
#include <thread>
#include <vector>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class OutOfMemoryOrder : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=1,memory=64MiB", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it fills a small machine"); }

  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    Result<CUdeviceptr> served = runtime().AllocateFrom(pool, bytes, stream);
    EXPECT_TRUE(served.ok()) << served.status().message();
    return served.ok() ? *served : 0;
  }
  // Leaves the pool with a free segment of that size.
  void Cache(PoolHandle pool, uint64_t bytes) { Free(Allocate(pool, bytes)); }
  uint64_t Reserved(PoolHandle pool) { return CountersOf(pool).reserved_bytes.current; }
};

TEST_F(OutOfMemoryOrder, BeginsWithTheThreadsCachesOfThePool) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 60 * kMiB);
  std::latch cached(1);
  std::latch over(1);
  std::thread holder([&] {
    Free(Allocate(pool, kMiB));
    cached.count_down();
    over.wait();
  });
  cached.wait();
  const uint64_t reserved = Reserved(pool);
  const CUdeviceptr served = Allocate(pool, kMiB);
  EXPECT_EQ(Reserved(pool), reserved);
  EXPECT_EQ(Reserved(idle), 60 * kMiB);
  over.count_down();
  holder.join();
  Free(served);
}

// cupy/cupy#7678: a small block that lay among large ones stayed in a cache, and kept them apart.
TEST_F(OutOfMemoryOrder, ServesTheLastMegabytesUnderALimit) {
  PoolConfiguration configuration = Configured("limited");
  configuration.limit_bytes = 32 * kMiB;
  const PoolHandle pool = Create(configuration);
  Cache(pool, 32 * kMiB);
  Cache(pool, kMiB);
  std::vector<CUdeviceptr> blocks;
  for (int time = 0; time < 4; ++time) blocks.push_back(Allocate(pool, 8 * kMiB));
  for (const CUdeviceptr block : blocks) Free(block);
}

TEST_F(OutOfMemoryOrder, TakesMemoryOfOtherStreamsByAWaitOnTheDevice) {
  const TestStream stream;
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 20 * kMiB);
  const CUdeviceptr used = Allocate(pool, 40 * kMiB);
  HeldWork work(driver(), nullptr, used);
  Free(used);
  const uint64_t waits = CallCount("cuStreamWaitEvent");
  const CUdeviceptr served = Allocate(pool, 40 * kMiB, stream.get());
  EXPECT_GT(CallCount("cuStreamWaitEvent"), waits);
  EXPECT_EQ(Reserved(idle), 20 * kMiB);
  work.End();
  Free(served);
}

TEST_F(OutOfMemoryOrder, OpensPendingFreesByAWaitOnTheHost) {
  const TestStream stream;
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 20 * kMiB);
  ASSERT_TRUE(Get(pool).mode().Reserve(40 * kMiB).ok());
  // Neighbours that different streams used merge once nobody uses them.
  const CUdeviceptr one = Allocate(pool, 20 * kMiB);
  const CUdeviceptr other = Allocate(pool, 20 * kMiB);
  ASSERT_TRUE(runtime().RecordStream(other, stream.get()).ok());
  Free(one);
  Free(other);
  const CUdeviceptr served = Allocate(pool, 40 * kMiB);
  EXPECT_EQ(Reserved(pool), 40 * kMiB);
  EXPECT_EQ(Reserved(idle), 20 * kMiB);
  Free(served);
}

TEST_F(OutOfMemoryOrder, ReleasesOwnSegmentsAndThoseOfOtherPools) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle pool = Create(Configured("own"));
  Cache(idle, 30 * kMiB);
  Cache(pool, 30 * kMiB);
  const CUdeviceptr served = Allocate(pool, 60 * kMiB);
  EXPECT_EQ(Reserved(pool), 60 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
  Free(served);
}

TEST_F(OutOfMemoryOrder, EndsWithTheError) {
  const PoolHandle pool = Create(Configured("own"));
  const CUdeviceptr live = Allocate(pool, 40 * kMiB);
  ExpectFailure(runtime().AllocateFrom(pool, 30 * kMiB, nullptr).status(), StatusCode::kOutOfMemory, "40 MiB");
  Free(live);
}

}  // namespace
}  // namespace commpool::internal::testing
