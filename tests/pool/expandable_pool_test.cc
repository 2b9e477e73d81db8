// Expandable pools: free pages move to where they are needed, never under work that may still use them.
#include <cmath>
#include <future>
#include <random>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kPage = 2 * kMiB;

class ExpandablePools : public PoolTest {
 protected:
  PoolHandle Make(PoolOptions options = {}) {
    options.name = "expandable";
    options.mode = Mode::kExpandable;
    options.segment_bytes = kPage;
    return CreateWith(options);
  }

  // Four live blocks of two pages each, filled with their number, and as many free pages between them.
  std::vector<CUdeviceptr> Fragment(PoolHandle pool) {
    std::vector<CUdeviceptr> blocks;
    for (uint8_t block = 0; block < 8; ++block) {
      blocks.push_back(Allocate(pool, 2 * kPage));
      Fill(nullptr, blocks.back(), 2 * kPage, block);
    }
    for (size_t block = 7; block < 8; block -= 2) {
      Free(blocks[block]);
      blocks.erase(blocks.begin() + static_cast<long>(block));
    }
    EXPECT_TRUE(Get(pool).blocks().WaitForDevice().ok());
    return blocks;
  }
  // Checks that each of Fragment's blocks has its data, and frees them.
  void CheckAndFree(const std::vector<CUdeviceptr>& blocks) {
    for (size_t block = 0; block < blocks.size(); ++block) {
      SCOPED_TRACE(block);
      ExpectBytes(nullptr, blocks[block], 2 * kPage, static_cast<uint8_t>(2 * block));
      Free(blocks[block]);
    }
  }
};

TEST_F(ExpandablePools, ServeAnyRequestThatFitsIntoFreeMemoryWithoutMakingMore) {
  const PoolHandle pool = Make();
  const std::vector<CUdeviceptr> live = Fragment(pool);
  const uint64_t made = CallCount("cuMemCreate");
  const CUdeviceptr large = Allocate(pool, 8 * kPage);
  EXPECT_EQ(CallCount("cuMemCreate"), made);
  EXPECT_EQ(Reserved(pool), 16 * kPage);
  EXPECT_GT(CountersOf(pool).moved_bytes, 0u);
  EXPECT_LE(CountersOf(pool).moved_bytes, 8 * kPage);
  Fill(nullptr, large, 8 * kPage, 99);
  CheckAndFree(live);
}

// So that pages find room in one piece. Thousands of pools reserve less each.
TEST_F(ExpandablePools, ReserveAddressesForTwiceTheDevicesMemory) {
  const PoolHandle pool = Make();
  Allocate(pool, kPage);
  EXPECT_GE(Get(pool).basis().runtime.addresses.bytes(), 128 * kGiB);
}

TEST_F(ExpandablePools, ComeToRestWhereBlocksAreReplacedAtRandom) {
  const PoolHandle pool = CreateWith({.mode = Mode::kExpandable});
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> doublings(0, 6);
  std::vector<CUdeviceptr> blocks(16);
  const auto replace = [&](int times) {
    for (int time = 0; time < times; ++time) {
      CUdeviceptr& block = blocks[random() % blocks.size()];
      if (block != 0) Free(block);
      block = Allocate(pool, static_cast<uint64_t>(kMiB * std::exp2(doublings(random))));
    }
  };
  replace(8000);
  const uint64_t calls = CallCount("cuMemMap");
  replace(2000);
  EXPECT_LE(CallCount("cuMemMap") - calls, 2000u / 50) << "117 where the slack never widens";
}

TEST_F(ExpandablePools, UnmapPagesThatLieInARowInOneCall) {
  const PoolHandle pool = Make();
  const std::vector<CUdeviceptr> live = Fragment(pool);
  const uint64_t unmapped = CallCount("cuMemUnmap");
  Allocate(pool, 8 * kPage);
  EXPECT_EQ(CountersOf(pool).moved_bytes, 6 * kPage) << "beside two that lie at the end";
  EXPECT_EQ(CallCount("cuMemUnmap") - unmapped, 3u) << "two pages each";
  CheckAndFree(live);
}

TEST_F(ExpandablePools, KeepServingWhereAPageCannotBeUnmapped) {
  COMMPOOL_REQUIRE_EMULATOR("it makes a driver call fail");
  const PoolHandle pool = Make();
  const std::vector<CUdeviceptr> live = Fragment(pool);
  const uint64_t made = CallCount("cuMemCreate");
  {
    InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(TryAllocate(pool, 8 * kPage).status().code(), StatusCode::kDriverError);
  }
  EXPECT_EQ(Reserved(pool), 16 * kPage) << "its pages are where they were";
  const CUdeviceptr large = Allocate(pool, 8 * kPage);
  EXPECT_EQ(CallCount("cuMemCreate"), made);
  Fill(nullptr, large, 8 * kPage, 99);
  CheckAndFree(live);
}

TEST_F(ExpandablePools, ServeAgainWhereTheUndoOfAGrowthFailedToo) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const PoolHandle pool = Make();
  {
    const InjectedFault open({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .count = 10000});
    const InjectedFault undo({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .count = 10000});
    EXPECT_FALSE(TryAllocate(pool, 4 * kPage).ok());
  }
  const CUdeviceptr block = Allocate(pool, 4 * kPage);
  EXPECT_EQ(Reserved(pool), 4 * kPage);
  Fill(nullptr, block, 4 * kPage, 1);
  Synchronize();
}

TEST_F(ExpandablePools, ServeFromTheLowestAddressThatFits) {
  const PoolHandle pool = Make();
  const CUdeviceptr lowest = Allocate(pool, 6 * kPage);
  Allocate(pool, kPage);
  const CUdeviceptr exact = Allocate(pool, 4 * kPage);
  Allocate(pool, kPage);
  ASSERT_LT(lowest, exact);
  FreeAll({lowest, exact});
  ASSERT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  EXPECT_EQ(Allocate(pool, 4 * kPage), lowest) << "so that the other end has whole pages that can move";
}

TEST_F(ExpandablePools, RefuseMoreThanThereAreAddresses) {
  const PoolHandle pool = Make();
  Allocate(pool, 3 * kPage);
  for (const uint64_t bytes : {UINT64_MAX - 2 * kPage, UINT64_MAX - kGiB, uint64_t{1} << 63}) {
    EXPECT_EQ(TryAllocate(pool, bytes).status().code(), StatusCode::kOutOfMemory) << bytes;
  }
  EXPECT_EQ(TryAllocate(pool, UINT64_MAX).status().code(), StatusCode::kInvalidArgument);
  Allocate(pool, 3 * kPage);
}

TEST_F(ExpandablePools, GrowAroundMemoryThatAnotherStreamUses) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const PoolHandle pool = Make();
  const TestStream stream;
  const CUdeviceptr first = Allocate(pool, 2 * kPage, stream);
  HeldWork work(driver(), stream, first);
  Free(first);
  EXPECT_EQ(Allocate(pool, 4 * kPage), first) << "on another stream";
  EXPECT_EQ(Reserved(pool), 4 * kPage) << "behind a wait on the device";
  EXPECT_EQ(CountersOf(pool).moved_bytes, 0u);
}

TEST_F(ExpandablePools, TakeMemoryOfAFinishedStreamWithoutAWait) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Make();
  const TestStream stream;
  std::vector<CUdeviceptr> used;
  for (int block = 0; block < 3; ++block) used.push_back(Allocate(pool, 2 * kPage, stream));
  FreeAll({used[0], used[2]});
  const uint64_t waits = CallCount("cuStreamWaitEvent");
  EXPECT_EQ(Allocate(pool, 2 * kPage), used[0]) << "on another stream";
  const uint64_t questions = CallCount("cuStreamQuery");
  EXPECT_EQ(Allocate(pool, 2 * kPage), used[2]);
  EXPECT_EQ(CallCount("cuStreamQuery"), questions) << "all that the stream had freed is idle";
  EXPECT_EQ(CallCount("cuStreamWaitEvent"), waits);
}

TEST_F(ExpandablePools, CountAWaitForBusyPagesOnceAndGiveItUp) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const PoolHandle pool = Make();
  const TestStream stream;
  const CUdeviceptr busy = Allocate(pool, 8 * kPage, stream);
  Allocate(pool, kPage, stream);
  HeldWork work(driver(), stream, busy);
  Free(busy);
  const uint64_t waits = CountersOf(pool).host_waits;
  Allocate(pool, 12 * kPage, stream);
  EXPECT_EQ(CountersOf(pool).host_waits, waits + 1);
  EXPECT_EQ(Reserved(pool), 21 * kPage);
}

TEST_F(ExpandablePools, WaitAndMoveWhereTheyMayNotGrow) {
  COMMPOOL_REQUIRE_EMULATOR("it holds a stream");
  const PoolHandle pool = Make({.limit_bytes = 4 * kPage});
  const TestStream stream;
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 4; ++block) blocks.push_back(Allocate(pool, kPage, stream));
  HeldWork work(driver(), stream, blocks[0]);
  FreeAll({blocks[0], blocks[2]});
  std::future<CUdeviceptr> served = std::async(std::launch::async, [&] {
    const ContextGuard guard(driver(), context());
    return Allocate(pool, 2 * kPage, stream);
  });
  work.End();
  const CUdeviceptr large = served.get();
  EXPECT_EQ(CountersOf(pool).reserved_bytes.peak, 4 * kPage);
  EXPECT_GT(CountersOf(pool).moved_bytes, 0u);
  Fill(stream, large, 2 * kPage, 1);
}

TEST_F(ExpandablePools, GiveNothingBackWhereAStreamCannotBeAsked) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const PoolHandle pool = Make({.release_threshold_bytes = 0});
  const TestStream one;
  const TestStream other;
  const CUdeviceptr first = Allocate(pool, 2 * kPage, one);
  Allocate(pool, 2 * kPage);  // so that the others do not merge
  const CUdeviceptr second = Allocate(pool, 2 * kPage, other);
  for (const CUdeviceptr block : {first, second}) {
    const InjectedFault first_query({.call = "cuStreamQuery", .result = CUDA_ERROR_INVALID_VALUE});
    Free(block);
  }
  EXPECT_EQ(Reserved(pool), 6 * kPage);
  ASSERT_TRUE(Get(pool).mode().Reclaim().ok());
  EXPECT_EQ(Reserved(pool), 2 * kPage);
}

TEST_F(ExpandablePools, AreNotRegistered) {
  ExpectFailure(Get(Make()).mode().RegisterWith(nullptr), StatusCode::kNotSupported, "expandable");
}

TEST_F(ExpandablePools, LetPeersSeePagesThatMoved) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle pool = Make({.peers = {1}});
  const std::vector<CUdeviceptr> live = Fragment(pool);
  const CUdeviceptr large = Allocate(pool, 8 * kPage);
  EXPECT_GT(CountersOf(pool).moved_bytes, 0u);
  Fill(nullptr, large, 8 * kPage, 42);
  Synchronize();
  {
    const PrimaryContext peer = PrimaryContext::Retain(driver(), 1).value();
    const ContextGuard guard(driver(), peer);
    ExpectBytes(nullptr, large, 8 * kPage, 42);
  }
  CheckAndFree(live);
}

TEST_F(ExpandablePools, OpenAllPagesOfAGrowthToAllPeersInOneCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Make({.peers = {1, 2}});
  const uint64_t maps = CallCount("cuMemMap");
  const uint64_t calls = CallCount("cuMemSetAccess");
  const CUdeviceptr block = Allocate(pool, 12 * kPage);
  EXPECT_EQ(CallCount("cuMemMap"), maps + 12);
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 1);
  for (uint64_t page = 0; page < 12; ++page) {
    for (const int device : {0, 1, 2}) {
      EXPECT_EQ(AccessOf(device, block + page * kPage), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
          << "page " << page << ", device " << device;
    }
  }
  ASSERT_TRUE(Get(pool).segments().peers.Revoke({1, 2}).ok());
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 3) << "one for each, over all pages";
  ASSERT_TRUE(Get(pool).segments().peers.Grant({1, 2}).ok());
  EXPECT_EQ(CallCount("cuMemSetAccess"), calls + 4);
}

TEST_F(ExpandablePools, LeaveAPeerNoAccessWhereItsGrantFailsBehindAHole) {
  COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail");
  const PoolHandle pool = Make();
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 3; ++block) blocks.push_back(Allocate(pool, 2 * kPage));
  Free(blocks[1]);
  ASSERT_EQ(Get(pool).Trim(0).value(), 2 * kPage);
  {
    InjectedFault fault({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .skip = 1});
    InjectedFault undo({.call = "cuMemSetAccess", .result = CUDA_ERROR_UNKNOWN, .skip = 2});
    ExpectFailure(Get(pool).segments().peers.Grant({1}), StatusCode::kDriverError, "cuMemSetAccess");
  }
  for (const size_t block : {0, 2}) EXPECT_EQ(AccessOf(1, blocks[block]), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(ExpandablePools, AskForTheContextAsOftenForManyPagesAsForFew) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  const PoolHandle pool = Make();
  Free(Allocate(pool, 2 * kPage));  // reserves addresses
  ASSERT_TRUE(Get(pool).Trim(0).ok());
  std::vector<uint64_t> asked;
  for (const uint64_t pages : {2, 12}) {
    const uint64_t before = CallCount("cuCtxGetCurrent");
    const CUdeviceptr block = Allocate(pool, pages * kPage);
    asked.push_back(CallCount("cuCtxGetCurrent") - before);
    Free(block);
    ASSERT_TRUE(Get(pool).Trim(0).ok());
  }
  EXPECT_EQ(asked[0], asked[1]);
}

TEST_F(ExpandablePools, TrimToWhatIsAskedFor) {
  const PoolHandle pool = Make();
  const std::vector<CUdeviceptr> live = Fragment(pool);
  EXPECT_EQ(Get(pool).Trim(12 * kPage).value(), 4 * kPage);
  EXPECT_EQ(Reserved(pool), 12 * kPage);
  EXPECT_EQ(Get(pool).Trim(0).value(), 4 * kPage);  // the rest has live blocks
  CheckAndFree(live);
  EXPECT_EQ(Get(pool).Trim(0).value(), 8 * kPage);
}

TEST_F(ExpandablePools, MoveUnderPressureAloneWhereAskedTo) {
  PoolConfiguration configuration =
      ConfiguredWith({.mode = Mode::kExpandable, .segment_bytes = kPage, .limit_bytes = 20 * kPage});
  configuration.moves = Moves::kUnderPressure;
  const PoolHandle pool = Create(configuration);
  const std::vector<CUdeviceptr> live = Fragment(pool);
  Allocate(pool, 4 * kPage);
  EXPECT_EQ(CountersOf(pool).moved_bytes, 0u);
  Allocate(pool, 8 * kPage - (20 * kPage - Reserved(pool)));
  EXPECT_LE(CountersOf(pool).reserved_bytes.peak, 20 * kPage);
  CheckAndFree(live);
}

TEST_F(ExpandablePools, HoldTheirLimitAndNameIt) {
  const PoolHandle pool = Make({.limit_bytes = 4 * kPage});
  Allocate(pool, 3 * kPage);
  ExpectFailure(TryAllocate(pool, 2 * kPage).status(), StatusCode::kOutOfMemory, "its limit of 8 MiB");
}

TEST_F(ExpandablePools, LiveUntilTheirLastBlockIsFreed) {
  const PoolHandle pool = Make();
  const std::vector<CUdeviceptr> live = Fragment(pool);
  Destroy(pool);
  EXPECT_FALSE(TryAllocate(pool, 512).ok());
  CheckAndFree(live);
}

struct Step {
  const char* call;
  int skip = 0;
  int result = CUDA_ERROR_UNKNOWN;
  int count = 1;
  StatusCode code = StatusCode::kDriverError;
};
void PrintTo(const Step& step, std::ostream* stream) { *stream << step.call << ", call " << step.skip + 1; }

class FailingMoves : public ExpandablePools, public ::testing::WithParamInterface<Step> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
};

TEST_P(FailingMoves, LeaveThePoolSound) {
  const PoolHandle pool = Make({.peers = {1}});
  const std::vector<CUdeviceptr> live = Fragment(pool);
  const uint64_t reserved = Reserved(pool);
  {
    // Half of the pages move, the other half are new.
    const Step step = GetParam();
    const InjectedFault fault({.call = step.call, .result = step.result, .skip = step.skip, .count = step.count});
    ExpectFailure(TryAllocate(pool, 16 * kPage).status(), step.code, step.call);
  }
  CheckInvariants(Get(pool));
  EXPECT_LE(Reserved(pool), reserved);
  MemoryAccount& account = runtime().devices().Get(0).value()->account();
  EXPECT_EQ(account.limit() - account.Room(), Reserved(pool));
  const CUdeviceptr large = Allocate(pool, 16 * kPage);
  Fill(nullptr, large, 16 * kPage, 99);
  CheckInvariants(Get(pool));
  CheckAndFree(live);
}

// One call sets access for the pool's device and the peer.
INSTANTIATE_TEST_SUITE_P(Vmm, FailingMoves,
                         ::testing::Values(Step{"cuMemMap"}, Step{"cuMemMap", 3}, Step{"cuMemMap", 9},
                                           Step{"cuMemSetAccess"}));

// After a refusal the pool tries again, under pressure and with fewer properties: all tries must be refused.
INSTANTIATE_TEST_SUITE_P(
    OutOfMemory, FailingMoves,
    ::testing::Values(Step{"cuMemCreate", 0, CUDA_ERROR_OUT_OF_MEMORY, 1000, StatusCode::kOutOfMemory},
                      Step{"cuMemCreate", 3, CUDA_ERROR_OUT_OF_MEMORY, 1000, StatusCode::kOutOfMemory}));

}  // namespace
}  // namespace commpool::internal::testing
