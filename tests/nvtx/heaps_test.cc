// Segments are heaps of a tool, and blocks are its regions: the tool knows at each moment what the pool lists.
#include <set>
#include <string>

#include "tests/nvtx/listener_fixture.h"
#include "tests/pool/announced_capture.h"

namespace commpool::internal::testing {
namespace {

class Memory : public ListenerTest {
 protected:
  using Names = std::multiset<std::string>;
  static Names Domains() {
    Names names;
    for (const std::string* const domain : heard().domains) names.insert(*domain);
    return names;
  }
};

TEST_F(Memory, EachBlockIsARegionOfTheBytesThatWereAskedFor) {
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

TEST_F(Memory, ABlockThatServesAgainIsARegionOfItsNewSize) {
  const PoolHandle pool = Make();
  const CUdeviceptr first = Allocate(pool, 1000);
  Free(first);
  EXPECT_TRUE(Regions().empty());
  const CUdeviceptr second = Allocate(pool, 900);
  EXPECT_EQ(second, first);
  EXPECT_EQ(Regions(), (Bytes{{second, 900}}));
  Free(second);
}

TEST_F(Memory, ManyBlocksAreToldOnceEach) {
  const PoolHandle pool = Make();
  std::vector<CUdeviceptr> blocks;
  for (int count = 0; count < 300; ++count) blocks.push_back(Allocate(pool, 512));
  EXPECT_EQ(Regions(), Listed(pool));
  for (const CUdeviceptr block : blocks) Free(block);
  EXPECT_TRUE(Regions().empty());
}

TEST_F(Memory, ATrimmedSegmentIsNoHeapAnyMore) {
  const PoolHandle pool = Make();
  Free(Allocate(pool, 8 * kMiB));
  EXPECT_FALSE(heard().heaps.empty());
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  EXPECT_TRUE(heard().heaps.empty());
}

// A kernel that runs past a block of a full size has to meet memory that is no region.
TEST_F(Memory, BehindEachBlockLieBytesOfNone) {
  const PoolHandle pool = Make();
  for (const uint64_t bytes : {uint64_t{512}, uint64_t{1024}, 128 * kKiB, kMiB, 2 * kMiB, 20 * kMiB}) {
    std::vector<CUdeviceptr> blocks;
    for (int count = 0; count < 4; ++count) blocks.push_back(Allocate(pool, bytes));
    for (const CUdeviceptr block : blocks) {
      EXPECT_FALSE(Regions().contains(block + bytes)) << "a neighbour of " << bytes << " bytes";
    }
    EXPECT_EQ(Regions(), Listed(pool));
    for (const CUdeviceptr block : blocks) Free(block);
  }
}

// compute-sanitizer refuses what cudaMalloc has not made, and counts each refusal as an error of the program.
TEST_F(Memory, OfOtherBackingsTheToolHearsNothing) {
  for (const Mode mode : {Mode::kFixed, Mode::kExpandable}) {
    PoolConfiguration configuration = Configured("activations");
    configuration.mode = mode;
    const PoolHandle pool = Create(configuration);
    const CUdeviceptr block = Allocate(pool, 1000);
    EXPECT_TRUE(heard().heaps.empty());
    EXPECT_TRUE(Regions().empty());
    Free(block);
    EXPECT_TRUE(runtime().DestroyPool(pool).ok());  // an expandable pool gives its addresses back then
  }
}

TEST_F(Memory, ABlockThatOutlivesItsPoolIsARegionUntilItsFree) {
  const PoolHandle pool = Make();
  const CUdeviceptr block = Allocate(pool, 1000);
  ASSERT_TRUE(runtime().DestroyPool(pool).ok());
  EXPECT_EQ(Regions(), (Bytes{{block, 1000}}));
  EXPECT_EQ(heard().domains.size(), 1u);
  Free(block);
  EXPECT_TRUE(heard().heaps.empty());
}

TEST_F(Memory, ARefusedHeapHasNoRegions) {
  const PoolHandle pool = Make();
  heard().refused_heaps = 1;
  const CUdeviceptr block = Allocate(pool, 1000);
  EXPECT_TRUE(Regions().empty());
  Free(block);
}

TEST_F(Memory, AFailedGrowthLeavesNoHeap) {
  COMMPOOL_REQUIRE_EMULATOR("a driver call fails");
  const PoolHandle pool = Make();
  {
    const InjectedFault fault({.call = "cuMemAlloc", .result = CUDA_ERROR_UNKNOWN, .count = 100});
    EXPECT_FALSE(runtime().AllocateFrom(pool, kMiB, nullptr).ok());
  }
  EXPECT_TRUE(Regions().empty());
  EXPECT_TRUE(heard().heaps.empty());
}

// A graph's kernels may run again on a block that the program freed in the capture.
TEST_F(Memory, ABlockOfAGraphStaysARegion) {
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

TEST_F(Memory, TwoPoolsOfOneNameAreTwoDomainsWithNamesOfTheirOwn) {
  const PoolHandle one = Make("twin");
  const PoolHandle other = Make("twin");
  const CUdeviceptr block = Allocate(one, 1000);
  const CUdeviceptr other_block = Allocate(other, 1000);
  EXPECT_EQ(Domains(), (Names{"commpool: twin", "commpool: twin #2"}));
  EXPECT_EQ(heard().regions[other_block].name, "twin #2");
  Free(other_block);
  ASSERT_TRUE(runtime().DestroyPool(other).ok());
  EXPECT_EQ(Regions(), (Bytes{{block, 1000}}));
  Free(block);
}

TEST_F(Memory, ADomainsNameIsThatOfNoOtherLivePool) {
  const PoolHandle first = Make("twin");
  Make("twin #2");
  Make("twin");
  EXPECT_EQ(Domains(), (Names{"commpool: twin", "commpool: twin #2", "commpool: twin #3"}));
  ASSERT_TRUE(runtime().DestroyPool(first).ok());
  EXPECT_EQ(Domains(), (Names{"commpool: twin #2", "commpool: twin #3"}));
  Make("twin");
  EXPECT_EQ(Domains(), (Names{"commpool: twin", "commpool: twin #2", "commpool: twin #3"}));
}

// The last of a pool that is gone is its block's heap.
TEST_F(Memory, ADomainKeepsItsNameAsLongAsABlockOfItsPool) {
  const PoolHandle first = Make("twin");
  const CUdeviceptr block = Allocate(first, 1000);
  ASSERT_TRUE(runtime().DestroyPool(first).ok());
  Make("twin");
  EXPECT_EQ(Domains(), (Names{"commpool: twin", "commpool: twin #2"}));
  Free(block);
  EXPECT_EQ(Domains(), (Names{"commpool: twin #2"}));
}

}  // namespace
}  // namespace commpool::internal::testing
