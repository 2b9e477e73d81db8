// Blocks wait for other streams that used them: how often an allocation asks the driver about these streams.
#include <future>
#include <vector>

#include "src/library/pool/blocks/block_store.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal::testing {
namespace {

class PendingFences : public PoolTest {
 protected:
  void Hold(CUstream stream) {
    ExpectOk(Launch(driver(), stream, {}, {}, [opened = opened_](const auto&, const auto&) { opened.wait(); }));
  }
  void FreeBlocks(PoolHandle pool, int blocks, CUstream user) {
    std::vector<CUdeviceptr> made;
    for (int block = 0; block < blocks; ++block) {
      made.push_back(Allocate(pool, 2 * kMiB));
      EXPECT_TRUE(runtime().RecordStream(made.back(), user).ok());
    }
    // Keeps the free memory behind them idle: it must not merge with their rest.
    Allocate(pool, 2 * kMiB);
    FreeAll(made);
  }
  // Counts calls of cuEventQuery in the next four allocations; one of these asks.
  uint64_t Questions(PoolHandle pool) {
    const uint64_t before = CallCount("cuEventQuery");
    for (int allocation = 0; allocation < 4; ++allocation) Free(Allocate(pool, 2 * kMiB));
    return CallCount("cuEventQuery") - before;
  }

  std::promise<void> gate_;
  const std::shared_future<void> opened_ = gate_.get_future().share();
};

TEST_F(PendingFences, AreAskedOnceAStreamWhileItWorks) {
  const TestStream first;
  const TestStream second;
  const PoolHandle pool = Create(Configured("shared"));
  ASSERT_TRUE(Get(pool).mode().Reserve(64 * kMiB).ok());
  Hold(first);
  Hold(second);
  FreeBlocks(pool, 6, first);
  EXPECT_EQ(Questions(pool), 1u);
  FreeBlocks(pool, 3, second);
  EXPECT_EQ(Questions(pool), 2u);
  EXPECT_GE(CountersOf(pool).pending_bytes, 18 * kMiB);
  uint64_t listed = 0;
  for (const commpool_block& block : ListBlocks(Get(pool).basis(), Get(pool).blocks())) {
    if (block.state == COMMPOOL_BLOCK_PENDING) listed += block.bytes;
  }
  EXPECT_EQ(listed, CountersOf(pool).pending_bytes) << "the listing says the same";

  gate_.set_value();
  Synchronize();
  EXPECT_EQ(Questions(pool), 9u) << "all have passed";
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
  EXPECT_EQ(Questions(pool), 0u);
}

// Else the memory behind the fences would stay unused longer, and the pool would grow instead.
TEST_F(PendingFences, AreAskedByEachFourthAllocationThoughOneInBetweenGrewThePool) {
  const TestStream first;
  const PoolHandle pool = Create(Configured("shared"));
  ASSERT_TRUE(Get(pool).mode().Reserve(64 * kMiB).ok());
  Hold(first);
  FreeBlocks(pool, 6, first);
  for (const uint64_t bytes : {2 * kMiB, 2 * kMiB, 256 * kMiB}) Allocate(pool, bytes);
  const uint64_t before = CallCount("cuEventQuery");
  Allocate(pool, 2 * kMiB);
  EXPECT_EQ(CallCount("cuEventQuery"), before + 1);
  gate_.set_value();
}

// A loop of them would else take all memory, although their work has ended.
TEST_F(PendingFences, OfStreamsThatWereOnlyRecordedDoNotLetThePoolGrowForEver) {
  const TestStream asks;
  const TestStream reads;
  const PoolHandle pool = CreateWith({.name = "recorded", .streams = Streams::kMayDie});
  for (int step = 0; step < 60; ++step) {
    const CUdeviceptr block = Allocate(pool, 3 * kMiB, asks);
    EXPECT_TRUE(runtime().RecordStream(block, reads).ok());
    Free(block);
    Synchronize(reads);
  }
  EXPECT_LE(Reserved(pool), 64 * kMiB);
}

}  // namespace
}  // namespace commpool::internal::testing
