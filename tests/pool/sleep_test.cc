// Fixed and expandable pools sleep: memory goes, addresses and blocks stay. The tests show which calls work meanwhile,
// and which copies the host keeps.
#include <algorithm>
#include <thread>

#include "src/library/pool/blocks/block_store.h"
#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

const SleepRequest kDiscarding;
const SleepRequest kKeeping{.keep = Keep::kHost};

uint64_t FreeMemory(const CudaDriver& cuda) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cuda.cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
  return free_bytes;
}

class SleepInMode : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  SleepInMode() {
    PoolConfiguration configuration = Configured("sleeper");
    configuration.mode = GetParam();
    pool_ = Create(configuration);
  }

  ~SleepInMode() override { static_cast<void>(runtime().DestroyPool(pool_)); }

  Pool& pool() { return Get(pool_); }
  commpool_statistics statistics() { return pool().Statistics(); }
  CUdeviceptr Allocate(uint64_t bytes, CUstream stream = nullptr) {
    return runtime().AllocateFrom(pool_, bytes, stream).value();
  }
  uint64_t WrongBytes(CUdeviceptr address, uint64_t bytes, uint8_t value) {
    uint64_t wrong = 0;
    Compare(stream_.get(), address, bytes, value, &wrong);
    EXPECT_EQ(cuda().cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
    return wrong;
  }
  void ExpectAsleep(const Status& status) {
    ExpectFailure(status, StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  }

  TestStream stream_;
  PoolHandle pool_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Modes, SleepInMode, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const auto& mode) { return mode.param == Mode::kFixed ? "Fixed" : "Expandable"; });

TEST_P(SleepInMode, GivesTheMemoryBackAndKeepsAddressesAndBlocks) {
  const CUdeviceptr large = Allocate(96 * kMiB);
  const CUdeviceptr small = Allocate(1000);
  const uint64_t reserved = statistics().reserved_bytes.current;
  const uint64_t free_before = FreeMemory(cuda());
  ExpectOk(SleepAlone(pool(), kDiscarding));
  EXPECT_GE(FreeMemory(cuda()), free_before + reserved);
  EXPECT_EQ(statistics().asleep_bytes, reserved);
  EXPECT_EQ(statistics().reserved_bytes.current, reserved);
  EXPECT_EQ(statistics().kept_bytes, 0u);
  ExpectOk(WakeAlone(pool()));
  EXPECT_LE(FreeMemory(cuda()), free_before + 2 * kMiB);
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  for (const CUdeviceptr block : {large, small}) {
    EXPECT_EQ(pool().FindBlock(block)->pointer, reinterpret_cast<void*>(block));
    Fill(stream_.get(), block, 1000, 7);
    EXPECT_EQ(WrongBytes(block, 1000, 7), 0u);
    ExpectOk(runtime().Free(block));
  }
}

TEST_P(SleepInMode, KeepsLiveBlocksOnTheHost) {
  const CUdeviceptr first = Allocate(70 * kMiB);  // more than one part of a copy
  const CUdeviceptr second = Allocate(3 * kMiB);
  const CUdeviceptr freed = Allocate(5 * kMiB);
  const CUdeviceptr small = Allocate(4096);
  for (const CUdeviceptr part : {first, first + 66 * kMiB}) Fill(stream_.get(), part, kMiB, 1);
  Fill(stream_.get(), second, 3 * kMiB, 2);
  Fill(stream_.get(), small, 4096, 3);
  ExpectOk(runtime().RecordStream(freed, stream_.get()));
  ExpectOk(runtime().Free(freed));
  ExpectOk(SleepAlone(pool(), kKeeping));
  const uint64_t kept = statistics().kept_bytes;
  EXPECT_GE(kept, 73 * kMiB + 4096);
  EXPECT_LT(kept, 78 * kMiB) << "free memory is not kept";
  ExpectOk(WakeAlone(pool()));
  EXPECT_EQ(statistics().kept_bytes, 0u);
  for (const CUdeviceptr part : {first, first + 66 * kMiB}) EXPECT_EQ(WrongBytes(part, kMiB, 1), 0u);
  EXPECT_EQ(WrongBytes(second, 3 * kMiB, 2), 0u);
  EXPECT_EQ(WrongBytes(small, 4096, 3), 0u);
  for (const CUdeviceptr block : {first, second, small}) {
    ExpectOk(runtime().RecordStream(block, stream_.get()));
    ExpectOk(runtime().Free(block));
  }
}

TEST_P(SleepInMode, TakesFreesFromAnyThreadMeanwhile) {
  const CUdeviceptr own = Allocate(1000);
  const CUdeviceptr of_a_thread = Allocate(1000);
  const CUdeviceptr shared = Allocate(4 * kMiB);
  const CUdeviceptr large = Allocate(32 * kMiB);
  Fill(stream_.get(), shared, kMiB, 1);
  ExpectOk(SleepAlone(pool(), kKeeping));
  ExpectOk(runtime().Free(own));
  std::thread([&] { ExpectOk(runtime().Free(of_a_thread)); }).join();
  ExpectOk(runtime().RecordStream(shared, stream_.get()));
  ExpectOk(runtime().Free(shared));
  ExpectOk(runtime().Free(large));
  EXPECT_EQ(runtime().Free(large).code(), StatusCode::kNotFound);
  EXPECT_EQ(statistics().allocated_blocks.current, 0u);
  CheckInvariants(pool());
  ExpectOk(WakeAlone(pool()));
  const CUdeviceptr again = Allocate(32 * kMiB);
  Fill(stream_.get(), again, kMiB, 4);
  EXPECT_EQ(WrongBytes(again, kMiB, 4), 0u);
  ExpectOk(runtime().Free(again));
}

TEST_P(SleepInMode, RefusesEveryOtherCallMeanwhile) {
  const CUdeviceptr block = Allocate(1000);
  const CUdeviceptr cached = Allocate(1000);
  ExpectOk(runtime().Free(cached));  // now in this thread's cache
  ExpectOk(SleepAlone(pool(), kDiscarding));
  ExpectAsleep(runtime().AllocateFrom(pool_, 1000, nullptr).status());
  ExpectAsleep(runtime().AllocateFrom(pool_, 32 * kMiB, nullptr).status());
  // Of a call that was under way as the pool fell asleep.
  ExpectAsleep(pool().mode().Allocate(1000, KeyOfStream(nullptr, 0)).status());
  EXPECT_EQ(pool().mode().ServeAtOnce(1000, KeyOfStream(nullptr, 0)), 0u);
  ExpectAsleep(pool().mode().Reserve(kMiB));
  ExpectAsleep(pool().mode().Reclaim().status());
  ExpectAsleep(pool().Trim(0).status());
  ExpectAsleep(pool().segments().peers.Grant({0}));
  ExpectAsleep(pool().segments().peers.Revoke({0}));
  ExpectAsleep(SleepAlone(pool(), kDiscarding));
  ExpectAsleep(pool().mode().RegisterPending().status());
  ExpectAsleep(runtime().BeginCapture(pool_, stream_.get()).status());
  EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
  ExpectOk(pool().mode().Deregister(nullptr));
  ExpectOk(runtime().ReleaseStream(stream_.get()));
  ExpectOk(WakeAlone(pool()));
  ExpectFailure(WakeAlone(pool()), StatusCode::kFailedPrecondition, "it is not asleep");
  EXPECT_NE(Allocate(1000), 0u);
  for (const commpool_block& live : ListBlocks(pool().basis(), pool().blocks())) {
    if (live.state == COMMPOOL_BLOCK_LIVE) ExpectOk(runtime().Free(reinterpret_cast<CUdeviceptr>(live.pointer)));
  }
  EXPECT_EQ(pool().FindBlock(block).status().code(), StatusCode::kNotFound);
}

TEST_P(SleepInMode, LetsThreadsCacheAgainOnceAwake) {
  ExpectOk(runtime().Free(Allocate(1000)));
  ExpectOk(SleepAlone(pool(), kDiscarding));
  ExpectOk(WakeAlone(pool()));
  ExpectOk(runtime().Free(Allocate(1000)));
  EXPECT_GT(statistics().cached_bytes, 0u);
}

TEST_P(SleepInMode, ClosesAsleepAndGivesItsAddressesBack) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(SleepAlone(pool(), kKeeping));
  ExpectOk(runtime().Free(block));
  ExpectOk(pool().Close());
  EXPECT_EQ(statistics().reserved_bytes.current, 0u);
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  EXPECT_NE(WakeAlone(pool()).message().find("wake: it is closed"), std::string::npos);
}

TEST_P(SleepInMode, WarnsWhereItClosesAsleepWithALiveBlock) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(SleepAlone(pool(), kKeeping));
  ::testing::internal::CaptureStderr();
  ExpectOk(pool().Close());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("closes asleep with 1 live block, whose"), std::string::npos) << said;
  ExpectOk(runtime().Free(block));
}

TEST_P(SleepInMode, IsDestroyedAsleepWithItsLastBlock) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(SleepAlone(pool(), kKeeping));
  ExpectOk(runtime().DestroyPool(pool_));
  ExpectOk(runtime().Free(block));
}

TEST_P(SleepInMode, FreesTheHostsMemoryWhereThePoolIsDestroyed) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const CUdeviceptr block = Allocate(4 * kMiB);
  ExpectOk(SleepAlone(pool(), kKeeping));
  const uint64_t freed = CallCount("cuMemFreeHost");
  ExpectOk(runtime().DestroyPool(pool_));  // its block stays alive
  EXPECT_EQ(CallCount("cuMemFreeHost"), freed + 1);
  ExpectOk(runtime().Free(block));
}

TEST_P(SleepInMode, AsksTheDriverNothingForAFreeWithAnyThreshold) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  PoolConfiguration configuration = Configured("threshold");
  configuration.mode = GetParam();
  configuration.release_threshold_bytes = 0;
  const PoolHandle releasing = Create(configuration);
  const CUdeviceptr block = runtime().AllocateFrom(releasing, 4 * kMiB, nullptr).value();
  ExpectOk(SleepAlone(Get(releasing), kDiscarding));
  const uint64_t before = CallCount("*");
  ExpectOk(runtime().Free(block));
  EXPECT_EQ(CallCount("*"), before);
  ExpectOk(WakeAlone(Get(releasing)));
  ExpectOk(runtime().DestroyPool(releasing));
}

TEST_P(SleepInMode, LeavesItsRoomToOthers) {
  const uint64_t bytes = 64 * kMiB;
  const CUdeviceptr block = Allocate(bytes);
  const uint64_t reserved = statistics().reserved_bytes.current;
  runtime().devices().Get(0).value()->account().SetLimit(reserved);
  ExpectOk(SleepAlone(pool(), kDiscarding));
  const PoolHandle other = Create(Configured("other"));
  const CUdeviceptr taken = runtime().AllocateFrom(other, bytes, nullptr).value();
  const Status full = WakeAlone(pool());
  EXPECT_EQ(full.code(), StatusCode::kOutOfMemory) << full.message();
  EXPECT_NE(full.message().find("waking " + FormatBytes(reserved) + " would exceed the limit of device 0"),
            std::string::npos)
      << full.message();
  EXPECT_EQ(statistics().asleep_bytes, reserved) << "asleep, as before";
  ExpectOk(runtime().Free(taken));
  ExpectOk(WakeAlone(pool()));  // takes unused memory of the other pool
  EXPECT_EQ(CountersOf(other).reserved_bytes.current, 0u);
  ExpectOk(runtime().Free(block));
}

TEST_P(SleepInMode, WaitsForGraphsUnlessTheyHoldNoCollectives) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  AnnouncedCapture capture;
  ExpectOk(capture.Begin(runtime(), pool_, stream_.get()));
  ExpectFailure(SleepAlone(pool(), {.graphs = LiveGraphs::kNoCollectives}), StatusCode::kFailedPrecondition,
                "is being captured");
  ExpectOk(capture.End());
  const Status live = SleepAlone(pool(), kDiscarding);
  ExpectFailure(live, StatusCode::kFailedPrecondition, "1 graph that captured with the pool");
  EXPECT_NE(live.message().find("NO_COLLECTIVES"), std::string::npos) << live.message();
  ExpectOk(SleepAlone(pool(), {.graphs = LiveGraphs::kNoCollectives}));
  ExpectOk(WakeAlone(pool()));
  capture.DestroyGraph();
  ExpectOk(runtime().Free(block));
}

TEST_P(SleepInMode, WithoutMemorySleepsAndWakes) {
  ExpectOk(SleepAlone(pool(), kKeeping));
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  ExpectOk(WakeAlone(pool()));
  ExpectOk(runtime().Free(Allocate(1000)));
}

TEST_P(SleepInMode, GrantsItsPeersAgain) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (!pool().segments().peers.Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(SleepAlone(pool(), kDiscarding));
  ExpectOk(WakeAlone(pool()));
  const CUmemLocation peer{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
  unsigned long long flags = 0;
  EXPECT_EQ(cuda().cuMemGetAccess(&flags, &peer, block), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  ExpectOk(runtime().Free(block));
}

class Sleep : public PoolTest {};

TEST_F(Sleep, NeedsMemoryThatCanLeaveItsAddresses) {
  PoolConfiguration configuration = Configured("cuda");
  configuration.backing.kind = BackingKind::kCuda;
  const PoolHandle pool = Create(configuration);
  const Status status = SleepAlone(Get(pool), kDiscarding);
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  EXPECT_NE(status.message().find("the cuda backing (device 0) cannot leave its addresses"), std::string::npos)
      << status.message();
  EXPECT_TRUE(Get(pool).basis().life.open());
}

TEST_F(Sleep, OfASegmentIsOneCallForEachStep) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const PoolHandle pool = Create(Configured("counted"));
  ExpectOk(Get(pool).mode().Reserve(512 * kMiB));
  const auto count = [&](const char* call, const auto& act) {
    const uint64_t before = CallCount(call);
    act();
    return CallCount(call) - before;
  };
  const auto sleep = [&] { ExpectOk(SleepAlone(Get(pool), kDiscarding)); };
  const auto wake = [&] { ExpectOk(WakeAlone(Get(pool))); };
  EXPECT_EQ(count("cuMemUnmap", sleep), 1u);
  EXPECT_EQ(count("cuMemCreate", wake), 1u);
  EXPECT_EQ(count("cuMemRelease", sleep), 1u);
  EXPECT_EQ(count("cuMemMap", wake), 1u);
  sleep();
  EXPECT_EQ(count("cuMemSetAccess", wake), 1u);
}

TEST_F(Sleep, LeavesTheHostsMemoryToTheProcessWhereTheRuntimeEnds) {
  COMMPOOL_REQUIRE_EMULATOR("what was kept leaks");
  AllowLeak("");
  const PoolHandle pool = Create(Configured("kept"));
  ASSERT_NE(runtime().AllocateFrom(pool, 4 * kMiB, nullptr).value(), 0u);
  ExpectOk(SleepAlone(Get(pool), kKeeping));
  const uint64_t freed = CallCount("cuMemFreeHost");
  EndRuntime();
  EXPECT_EQ(CallCount("cuMemFreeHost"), freed);
}

TEST_F(Sleep, CopiesNeighbouringBlocksInOneCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const PoolHandle pool = Create(Configured("neighbours"));
  ExpectOk(Get(pool).mode().Reserve(8 * kMiB));
  ExpectOk(Get(pool).mode().Reserve(64 * kMiB));  // so that the blocks lie in the second segment
  std::vector<CUdeviceptr> blocks;
  for (int block = 0; block < 5; ++block) {
    blocks.push_back(runtime().AllocateFrom(pool, 12 * kMiB, nullptr).value());
  }
  const auto copies = [&] {
    const uint64_t before = CallCount("cuMemcpyAsync");
    ExpectOk(SleepAlone(Get(pool), kKeeping));
    const uint64_t copied = CallCount("cuMemcpyAsync") - before;
    ExpectOk(WakeAlone(Get(pool)));
    return copied;
  };
  EXPECT_EQ(copies(), 1u) << "of 60 MiB";
  std::sort(blocks.begin(), blocks.end());
  ExpectOk(runtime().Free(blocks[2]));
  EXPECT_EQ(copies(), 2u) << "on both sides of what is free";
  for (const size_t block : {0, 1, 3, 4}) ExpectOk(runtime().Free(blocks[block]));
  EXPECT_EQ(copies(), 0u);
}

TEST_F(Sleep, OfPagesUnmapsARowOfThemInOneCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  PoolConfiguration configuration = Configured("pages");
  configuration.mode = Mode::kExpandable;
  const PoolHandle pool = Create(configuration);
  const CUdeviceptr block = runtime().AllocateFrom(pool, 64 * kMiB, nullptr).value();
  const uint64_t unmapped = CallCount("cuMemUnmap");
  ExpectOk(SleepAlone(Get(pool), kDiscarding));
  EXPECT_EQ(CallCount("cuMemUnmap") - unmapped, 1u);
  const uint64_t opened = CallCount("cuMemSetAccess");
  ExpectOk(WakeAlone(Get(pool)));
  EXPECT_EQ(CallCount("cuMemSetAccess") - opened, 1u);
  ExpectOk(runtime().Free(block));
  ExpectOk(runtime().DestroyPool(pool));
}

}  // namespace
}  // namespace commpool::internal::testing
