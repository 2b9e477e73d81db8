// Fixed and expandable pools sleep: memory goes, addresses and blocks stay. The tests show which calls work meanwhile,
// and which copies the host keeps.
#include <algorithm>
#include <thread>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"
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

class SleepInMode : public PoolTestInEachMode {
 protected:
  ~SleepInMode() override { static_cast<void>(runtime().DestroyPool(pool_)); }

  Pool& pool() { return Get(pool_); }
  commpool_statistics statistics() { return pool().Statistics(); }
  CUdeviceptr Allocate(uint64_t bytes, CUstream stream = nullptr) { return PoolTest::Allocate(pool_, bytes, stream); }
  Status Sleep(const SleepRequest& request) { return SleepAlone(pool(), request); }
  Status Wake() { return WakeAlone(pool()); }
  void ExpectAsleep(const Status& status) {
    ExpectFailure(status, StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  }

  TestStream stream_;
  const PoolHandle pool_ = Create(InMode("sleeper"));
};

INSTANTIATE_TEST_SUITE_P(Modes, SleepInMode, EachMode(), NameOfMode);

TEST_P(SleepInMode, GivesTheMemoryBackAndKeepsAddressesAndBlocks) {
  const CUdeviceptr large = Allocate(96 * kMiB);
  const CUdeviceptr small = Allocate(1000);
  const uint64_t reserved = statistics().reserved_bytes.current;
  const uint64_t free_before = FreeMemory(cuda());
  ExpectOk(Sleep(kDiscarding));
  EXPECT_GE(FreeMemory(cuda()), free_before + reserved);
  EXPECT_EQ(statistics().asleep_bytes, reserved);
  EXPECT_EQ(statistics().reserved_bytes.current, reserved);
  EXPECT_EQ(statistics().kept_bytes, 0u);
  ExpectOk(Wake());
  EXPECT_LE(FreeMemory(cuda()), free_before + 2 * kMiB);
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  for (const CUdeviceptr block : {large, small}) {
    EXPECT_EQ(pool().FindBlock(block)->pointer, reinterpret_cast<void*>(block));
    Fill(stream_, block, 1000, 7);
    ExpectBytes(stream_, block, 1000, 7);
  }
}

TEST_P(SleepInMode, KeepsLiveBlocksOnTheHost) {
  const CUdeviceptr first = Allocate(70 * kMiB);  // more than one part of a copy
  const CUdeviceptr second = Allocate(3 * kMiB);
  const CUdeviceptr freed = Allocate(5 * kMiB);
  const CUdeviceptr small = Allocate(4096);
  for (const CUdeviceptr part : {first, first + 66 * kMiB}) Fill(stream_, part, kMiB, 1);
  Fill(stream_, second, 3 * kMiB, 2);
  Fill(stream_, small, 4096, 3);
  ExpectOk(runtime().RecordStream(freed, stream_));
  Free(freed);
  ExpectOk(Sleep(kKeeping));
  const uint64_t kept = statistics().kept_bytes;
  EXPECT_GE(kept, 73 * kMiB + 4096);
  EXPECT_LT(kept, 78 * kMiB) << "free memory is not kept";
  ExpectOk(Wake());
  EXPECT_EQ(statistics().kept_bytes, 0u);
  for (const CUdeviceptr part : {first, first + 66 * kMiB}) ExpectBytes(stream_, part, kMiB, 1);
  ExpectBytes(stream_, second, 3 * kMiB, 2);
  ExpectBytes(stream_, small, 4096, 3);
  for (const CUdeviceptr block : {first, second, small}) ExpectOk(runtime().RecordStream(block, stream_));
}

TEST_P(SleepInMode, TakesFreesFromAnyThreadMeanwhile) {
  const CUdeviceptr own = Allocate(1000);
  const CUdeviceptr of_a_thread = Allocate(1000);
  const CUdeviceptr shared = Allocate(4 * kMiB);
  const CUdeviceptr large = Allocate(32 * kMiB);
  Fill(stream_, shared, kMiB, 1);
  ExpectOk(Sleep(kKeeping));
  Free(own);
  std::thread([&] { Free(of_a_thread); }).join();
  ExpectOk(runtime().RecordStream(shared, stream_));
  FreeAll({shared, large});
  EXPECT_EQ(runtime().Free(large).code(), StatusCode::kNotFound);
  EXPECT_EQ(statistics().allocated_blocks.current, 0u);
  CheckInvariants(pool());
  ExpectOk(Wake());
  const CUdeviceptr again = Allocate(32 * kMiB);
  Fill(stream_, again, kMiB, 4);
  ExpectBytes(stream_, again, kMiB, 4);
}

TEST_P(SleepInMode, RefusesEveryOtherCallMeanwhile) {
  const CUdeviceptr block = Allocate(1000);
  Free(Allocate(1000));  // now in this thread's cache
  ExpectOk(Sleep(kDiscarding));
  ExpectAsleep(TryAllocate(pool_, 1000).status());
  ExpectAsleep(TryAllocate(pool_, 32 * kMiB).status());
  // Of a call that was under way as the pool fell asleep.
  ExpectAsleep(pool().mode().Allocate(1000, KeyOfStream(nullptr, 0)).status());
  EXPECT_EQ(pool().mode().ServeAtOnce(1000, KeyOfStream(nullptr, 0)), 0u);
  ExpectAsleep(pool().mode().Reserve(kMiB));
  ExpectAsleep(pool().mode().Reclaim().status());
  ExpectAsleep(pool().Trim(0).status());
  ExpectAsleep(pool().segments().peers.Grant({0}));
  ExpectAsleep(pool().segments().peers.Revoke({0}));
  ExpectAsleep(Sleep(kDiscarding));
  ExpectAsleep(pool().mode().RegisterPending().status());
  ExpectAsleep(runtime().BeginCapture(pool_, stream_).status());
  EXPECT_EQ(pool().mode().ReleaseUnused(Wait::kYes), 0u);
  ExpectOk(pool().mode().Deregister(nullptr));
  ExpectOk(runtime().ReleaseStream(stream_));
  ExpectOk(Wake());
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "it is not asleep");
  Allocate(1000);
  Free(block);
  EXPECT_EQ(pool().FindBlock(block).status().code(), StatusCode::kNotFound);
}

TEST_P(SleepInMode, LetsThreadsCacheAgainOnceAwake) {
  Free(Allocate(1000));
  ExpectOk(Sleep(kDiscarding));
  ExpectOk(Wake());
  Free(Allocate(1000));
  EXPECT_GT(statistics().cached_bytes, 0u);
}

TEST_P(SleepInMode, ClosesAsleepAndGivesItsAddressesBack) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(Sleep(kKeeping));
  Free(block);
  ExpectOk(pool().Close());
  EXPECT_EQ(statistics().reserved_bytes.current, 0u);
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  EXPECT_NE(Wake().message().find("wake: it is closed"), std::string::npos);
}

TEST_P(SleepInMode, WarnsWhereItClosesAsleepWithALiveBlock) {
  Allocate(32 * kMiB);
  ExpectOk(Sleep(kKeeping));
  ::testing::internal::CaptureStderr();
  ExpectOk(pool().Close());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("closes asleep with 1 live block, whose"), std::string::npos) << said;
}

TEST_P(SleepInMode, IsDestroyedAsleepWithItsLastBlock) {
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(Sleep(kKeeping));
  Destroy(pool_);
  Free(block);
  EXPECT_TRUE(runtime().pools().All().empty());
}

TEST_P(SleepInMode, FreesTheHostsMemoryWhereThePoolIsDestroyed) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  Allocate(4 * kMiB);
  ExpectOk(Sleep(kKeeping));
  const uint64_t freed = CallCount("cuMemFreeHost");
  Destroy(pool_);  // its block stays alive
  EXPECT_EQ(CallCount("cuMemFreeHost"), freed + 1);
}

TEST_P(SleepInMode, AsksTheDriverNothingForAFreeWithAnyThreshold) {
  COMMPOOL_REQUIRE_EMULATOR("it counts driver calls");
  const PoolHandle releasing = CreateWith({.name = "threshold", .mode = GetParam(), .release_threshold_bytes = 0});
  const CUdeviceptr block = PoolTest::Allocate(releasing, 4 * kMiB);
  ExpectOk(SleepAlone(Get(releasing), kDiscarding));
  const uint64_t before = CallCount("*");
  Free(block);
  EXPECT_EQ(CallCount("*"), before);
  ExpectOk(WakeAlone(Get(releasing)));
}

TEST_P(SleepInMode, LeavesItsRoomToOthers) {
  const uint64_t bytes = 64 * kMiB;
  Allocate(bytes);
  const uint64_t reserved = statistics().reserved_bytes.current;
  runtime().devices().Get(0).value()->account().SetLimit(reserved);
  ExpectOk(Sleep(kDiscarding));
  const PoolHandle other = Create(Configured("other"));
  const CUdeviceptr taken = PoolTest::Allocate(other, bytes);
  ExpectFailure(Wake(), StatusCode::kOutOfMemory,
                "waking " + FormatBytes(reserved) + " would exceed the limit of device 0");
  EXPECT_EQ(statistics().asleep_bytes, reserved) << "asleep, as before";
  Free(taken);
  ExpectOk(Wake());  // takes unused memory of the other pool
  EXPECT_EQ(Reserved(other), 0u);
}

TEST_P(SleepInMode, WaitsForGraphsUnlessTheyHoldNoCollectives) {
  Allocate(32 * kMiB);
  AnnouncedCapture capture;
  ExpectOk(capture.Begin(runtime(), pool_, stream_));
  ExpectFailure(Sleep({.graphs = LiveGraphs::kNoCollectives}), StatusCode::kFailedPrecondition, "is being captured");
  ExpectOk(capture.End());
  const Status live = Sleep(kDiscarding);
  ExpectFailure(live, StatusCode::kFailedPrecondition, "1 graph that captured with the pool");
  EXPECT_NE(live.message().find("NO_COLLECTIVES"), std::string::npos) << live.message();
  ExpectOk(Sleep({.graphs = LiveGraphs::kNoCollectives}));
  ExpectOk(Wake());
}

TEST_P(SleepInMode, WithoutMemorySleepsAndWakes) {
  ExpectOk(Sleep(kKeeping));
  EXPECT_EQ(statistics().asleep_bytes, 0u);
  ExpectOk(Wake());
  Free(Allocate(1000));
}

TEST_P(SleepInMode, GrantsItsPeersAgain) {
  COMMPOOL_REQUIRE_DEVICES(2);
  if (!pool().segments().peers.Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
  const CUdeviceptr block = Allocate(32 * kMiB);
  ExpectOk(Sleep(kDiscarding));
  ExpectOk(Wake());
  EXPECT_EQ(AccessOf(1, block), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

class Sleep : public PoolTest {
 protected:
  // How often the driver call is made meanwhile.
  template <typename Act>
  static uint64_t CountOf(const char* call, const Act& act) {
    const uint64_t before = CallCount(call);
    act();
    return CallCount(call) - before;
  }
};

TEST_F(Sleep, NeedsMemoryThatCanLeaveItsAddresses) {
  const PoolHandle pool = CreateWith({.name = "cuda", .kind = BackingKind::kCuda});
  ExpectFailure(SleepAlone(Get(pool), kDiscarding), StatusCode::kNotSupported,
                "the cuda backing (device 0) cannot leave its addresses");
  EXPECT_TRUE(Get(pool).basis().life.open());
}

TEST_F(Sleep, OfASegmentIsOneCallForEachStep) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const PoolHandle pool = Create(Configured("counted"));
  ExpectOk(Get(pool).mode().Reserve(512 * kMiB));
  const auto sleep = [&] { ExpectOk(SleepAlone(Get(pool), kDiscarding)); };
  const auto wake = [&] { ExpectOk(WakeAlone(Get(pool))); };
  EXPECT_EQ(CountOf("cuMemUnmap", sleep), 1u);
  EXPECT_EQ(CountOf("cuMemCreate", wake), 1u);
  EXPECT_EQ(CountOf("cuMemRelease", sleep), 1u);
  EXPECT_EQ(CountOf("cuMemMap", wake), 1u);
  sleep();
  EXPECT_EQ(CountOf("cuMemSetAccess", wake), 1u);
}

TEST_F(Sleep, LeavesTheHostsMemoryToTheProcessWhereTheRuntimeEnds) {
  COMMPOOL_REQUIRE_EMULATOR("what was kept leaks");
  AllowLeak("");
  const PoolHandle pool = Create(Configured("kept"));
  ASSERT_NE(Allocate(pool, 4 * kMiB), 0u);
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
  for (int block = 0; block < 5; ++block) blocks.push_back(Allocate(pool, 12 * kMiB));
  const auto copies = [&] {
    const uint64_t copied = CountOf("cuMemcpyAsync", [&] { ExpectOk(SleepAlone(Get(pool), kKeeping)); });
    ExpectOk(WakeAlone(Get(pool)));
    return copied;
  };
  EXPECT_EQ(copies(), 1u) << "of 60 MiB";
  std::sort(blocks.begin(), blocks.end());
  Free(blocks[2]);
  EXPECT_EQ(copies(), 2u) << "on both sides of what is free";
  for (const size_t block : {0, 1, 3, 4}) Free(blocks[block]);
  EXPECT_EQ(copies(), 0u);
}

TEST_F(Sleep, OfPagesUnmapsARowOfThemInOneCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  const PoolHandle pool = CreateWith({.name = "pages", .mode = Mode::kExpandable});
  Allocate(pool, 64 * kMiB);
  EXPECT_EQ(CountOf("cuMemUnmap", [&] { ExpectOk(SleepAlone(Get(pool), kDiscarding)); }), 1u);
  EXPECT_EQ(CountOf("cuMemSetAccess", [&] { ExpectOk(WakeAlone(Get(pool))); }), 1u);
}

}  // namespace
}  // namespace commpool::internal::testing
