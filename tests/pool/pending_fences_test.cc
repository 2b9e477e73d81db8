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
  void Hold(const TestStream& stream) {
    const Status held =
        Launch(driver(), stream.get(), {}, {},
               [opened = opened_](const std::vector<const void*>&, const std::vector<void*>&) { opened.wait(); });
    EXPECT_TRUE(held.ok()) << held.message();
  }
  void Free(PoolHandle pool, int blocks, const TestStream& user) {
    std::vector<CUdeviceptr> made;
    for (int block = 0; block < blocks; ++block) {
      made.push_back(runtime().AllocateFrom(pool, 2 * kMiB, nullptr).value());
      EXPECT_TRUE(runtime().RecordStream(made.back(), user.get()).ok());
    }
    // Keeps the free memory behind them idle: it must not merge with their rest.
    between_.push_back(runtime().AllocateFrom(pool, 2 * kMiB, nullptr).value());
    for (const CUdeviceptr block : made) EXPECT_TRUE(runtime().Free(block).ok());
  }
  // Counts calls of cuEventQuery in the next four allocations; one of these asks.
  uint64_t Questions(PoolHandle pool) {
    const uint64_t before = CallCount("cuEventQuery");
    for (int allocation = 0; allocation < 4; ++allocation) {
      const CUdeviceptr block = runtime().AllocateFrom(pool, 2 * kMiB, nullptr).value();
      EXPECT_TRUE(runtime().Free(block).ok());
    }
    return CallCount("cuEventQuery") - before;
  }

  std::vector<CUdeviceptr> between_;
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
  Free(pool, 6, first);
  EXPECT_EQ(Questions(pool), 1u);
  Free(pool, 3, second);
  EXPECT_EQ(Questions(pool), 2u);
  EXPECT_GE(CountersOf(pool).pending_bytes, 18 * kMiB);
  uint64_t listed = 0;
  for (const commpool_block& block : ListBlocks(Get(pool).basis(), Get(pool).blocks())) {
    if (block.state == COMMPOOL_BLOCK_PENDING) listed += block.bytes;
  }
  EXPECT_EQ(listed, CountersOf(pool).pending_bytes) << "the listing says the same";

  gate_.set_value();
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Questions(pool), 9u) << "all have passed";
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
  EXPECT_EQ(Questions(pool), 0u);
  for (const CUdeviceptr block : between_) EXPECT_TRUE(runtime().Free(block).ok());
}

// Else the memory behind the fences would stay unused longer, and the pool would grow instead.
TEST_F(PendingFences, AreAskedByEachFourthAllocationThoughOneInBetweenGrewThePool) {
  const TestStream first;
  const PoolHandle pool = Create(Configured("shared"));
  ASSERT_TRUE(Get(pool).mode().Reserve(64 * kMiB).ok());
  Hold(first);
  Free(pool, 6, first);
  std::vector<CUdeviceptr> blocks;
  for (const uint64_t bytes : {2 * kMiB, 2 * kMiB, 256 * kMiB}) {
    blocks.push_back(runtime().AllocateFrom(pool, bytes, nullptr).value());
  }
  const uint64_t before = CallCount("cuEventQuery");
  blocks.push_back(runtime().AllocateFrom(pool, 2 * kMiB, nullptr).value());
  EXPECT_EQ(CallCount("cuEventQuery"), before + 1);
  gate_.set_value();
  for (const CUdeviceptr block : blocks) EXPECT_TRUE(runtime().Free(block).ok());
  for (const CUdeviceptr block : between_) EXPECT_TRUE(runtime().Free(block).ok());
}

// A loop of them would else take all memory, although their work has ended.
TEST_F(PendingFences, OfStreamsThatWereOnlyRecordedDoNotLetThePoolGrowForEver) {
  const TestStream asks;
  const TestStream reads;
  PoolConfiguration configuration = Configured("recorded");
  configuration.streams = Streams::kMayDie;
  const PoolHandle pool = Create(std::move(configuration));
  for (int step = 0; step < 60; ++step) {
    const CUdeviceptr block = runtime().AllocateFrom(pool, 3 * kMiB, asks.get()).value();
    EXPECT_TRUE(runtime().RecordStream(block, reads.get()).ok());
    EXPECT_TRUE(runtime().Free(block).ok());
    EXPECT_EQ(cuda().cuStreamSynchronize(reads.get()), CUDA_SUCCESS);
  }
  EXPECT_LE(CountersOf(pool).reserved_bytes.current, 64 * kMiB);
}

}  // namespace
}  // namespace commpool::internal::testing
