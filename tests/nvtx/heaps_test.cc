// Segments are heaps of a tool, and blocks are its regions: the tool knows at each moment what the pool lists.
#include "tests/nvtx/listener_fixture.h"
#include "tests/pool/announced_capture.h"

namespace commpool::internal::testing {
namespace {

class Memory : public ListenerTest, public ::testing::WithParamInterface<Mode> {
 protected:
  PoolHandle Make(const char* name = "gradients") {
    PoolConfiguration configuration = Configured(name);
    configuration.mode = GetParam();
    made_.push_back(Create(configuration));
    return made_.back();
  }
  // An expandable pool gives its addresses back at its end only.
  ~Memory() override {
    for (const PoolHandle pool : made_) static_cast<void>(runtime().DestroyPool(pool));
  }
  CUdeviceptr Allocate(PoolHandle pool, uint64_t bytes, CUstream stream = nullptr) {
    return runtime().AllocateFrom(pool, bytes, stream).value();
  }
  void Free(CUdeviceptr address) { EXPECT_TRUE(runtime().Free(address).ok()); }

 private:
  std::vector<PoolHandle> made_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Memory, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const auto& mode) { return mode.param == Mode::kFixed ? "Fixed" : "Expandable"; });

TEST_P(Memory, EachBlockIsARegionOfTheBytesThatWereAskedFor) {
  const PoolHandle pool = Make();
  const CUdeviceptr small = Allocate(pool, 1000);
  const CUdeviceptr large = Allocate(pool, 3 * kMiB + 5);
  EXPECT_EQ(Regions(), (Bytes{{small, 1000}, {large, 3 * kMiB + 5}}));
  EXPECT_EQ(Regions(), Listed(pool));
  EXPECT_EQ(heard().regions[small].name, "gradients");
  EXPECT_EQ(heard().regions[small].heap->pool, "commpool: gradients");
  Free(large);
  EXPECT_EQ(Regions(), (Bytes{{small, 1000}}));
  Free(small);
}

TEST_P(Memory, ABlockFromAThreadsCacheIsARegionOfItsNewSize) {
  const PoolHandle pool = Make();
  const CUdeviceptr first = Allocate(pool, 1000);
  Free(first);
  EXPECT_TRUE(Regions().empty());
  const CUdeviceptr second = Allocate(pool, 900);
  EXPECT_EQ(second, first);
  EXPECT_EQ(Regions(), (Bytes{{second, 900}}));
  Free(second);
}

TEST_P(Memory, AFullCacheTellsOfNoBlockTwice) {
  const PoolHandle pool = Make();
  std::vector<CUdeviceptr> blocks;
  for (int count = 0; count < 300; ++count) blocks.push_back(Allocate(pool, 512));
  EXPECT_EQ(Regions(), Listed(pool));
  for (const CUdeviceptr block : blocks) Free(block);
  EXPECT_TRUE(Regions().empty());
}

TEST_P(Memory, WhatIsTrimmedIsNoHeapAnyMore) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 8 * kMiB));
  EXPECT_FALSE(heard().heaps.empty());
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  // An expandable pool keeps its addresses.
  EXPECT_EQ(heard().heaps.empty(), GetParam() == Mode::kFixed);
}

TEST_P(Memory, APoolThatSleepsIsNoHeapAndComesBackWithItsBlocks) {
  const PoolHandle pool = Make();
  const CUdeviceptr kept = Allocate(pool, 1000);
  const CUdeviceptr freed = Allocate(pool, 2 * kMiB);
  ASSERT_TRUE(Get(pool).Sleep({.keep = Keep::kHost}).ok());
  EXPECT_TRUE(heard().heaps.empty());
  EXPECT_TRUE(Regions().empty());
  Free(freed);
  ASSERT_TRUE(Get(pool).Wake().ok());
  EXPECT_EQ(Regions(), (Bytes{{kept, 1000}}));
  Free(kept);
}

TEST_P(Memory, ABlockThatOutlivesItsPoolIsARegionUntilItsFree) {
  const PoolHandle pool = Make();
  const CUdeviceptr block = Allocate(pool, 1000);
  ASSERT_TRUE(runtime().DestroyPool(pool).ok());
  EXPECT_EQ(Regions(), (Bytes{{block, 1000}}));
  EXPECT_EQ(heard().domains.size(), 1u);
  Free(block);
  EXPECT_TRUE(heard().heaps.empty());
}

TEST_P(Memory, ARefusedHeapHasNoRegions) {
  const PoolHandle pool = Make();
  heard().refused_heaps = 1;
  const CUdeviceptr block = Allocate(pool, 1000);
  EXPECT_TRUE(Regions().empty());
  Free(block);
}

TEST_P(Memory, AFailedGrowthLeavesNoHeap) {
  COMMPOOL_REQUIRE_EMULATOR("a driver call fails");
  const PoolHandle pool = Make();
  {
    const InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .count = 100});
    EXPECT_FALSE(runtime().AllocateFrom(pool, kMiB, nullptr).ok());
  }
  EXPECT_TRUE(Regions().empty());
  // An expandable pool keeps its addresses.
  EXPECT_EQ(heard().heaps.empty(), GetParam() == Mode::kFixed);
}

// A graph's kernels may run again on a block that the program freed in the capture.
TEST_P(Memory, WhatAGraphUsesStaysARegion) {
  const PoolHandle pool = Make();
  TestStream stream;
  AnnouncedCapture capture;
  ASSERT_TRUE(capture.Begin(runtime(), pool, stream.get()).ok());
  const CUdeviceptr freed = Allocate(pool, 4 * kMiB, stream.get());
  Free(freed);
  const CUdeviceptr smaller = Allocate(pool, 3 * kMiB, stream.get());
  ASSERT_TRUE(capture.End().ok());
  EXPECT_EQ(Regions()[freed], 4 * kMiB);
  Free(smaller);
  EXPECT_EQ(Regions()[freed], 4 * kMiB);
  capture.DestroyGraph();
}

TEST_P(Memory, TwoPoolsOfOneNameAreTwoDomains) {
  const PoolHandle one = Make("twin");
  const PoolHandle other = Make("twin");
  const CUdeviceptr block = Allocate(one, 1000);
  EXPECT_EQ(heard().domains.size(), 2u);
  ASSERT_TRUE(runtime().DestroyPool(other).ok());
  EXPECT_EQ(Regions(), (Bytes{{block, 1000}}));
  Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
