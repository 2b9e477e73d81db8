// A driver call fails while a pool grows: the error names the call, and the pool is as before.
#include <functional>

#include "tests/pool/pool_fixture.h"
#include "tools/common/pool_invariants.h"

namespace commpool::internal::testing {
namespace {

struct Step {
  const char* call;
  int skip = 0;
};

void PrintTo(const Step& step, std::ostream* stream) { *stream << step.call << ", call " << step.skip + 1; }

class FailingGrowth : public PoolTest, public ::testing::WithParamInterface<Step> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
};

TEST_P(FailingGrowth, LeavesThePoolAsBefore) {
  PoolConfiguration configuration = Configured("growing");
  configuration.peers = {1};
  const PoolHandle pool = Create(configuration);
  const CUdeviceptr first = runtime().AllocateFrom(pool, 2 * kMiB, nullptr).value();
  const std::vector<std::string> before = EmulatorLeaks();
  {
    InjectedFault fault({.call = GetParam().call, .result = CUDA_ERROR_UNKNOWN, .skip = GetParam().skip});
    Result<CUdeviceptr> failed = runtime().AllocateFrom(pool, 30 * kMiB, nullptr);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.status().code(), StatusCode::kDriverError);
    for (const char* part : {GetParam().call, "pool growing", "device 0"}) {
      EXPECT_NE(failed.status().message().find(part), std::string::npos) << failed.status().message();
    }
  }
  EXPECT_EQ(EmulatorLeaks(), before);
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 1u);
  EXPECT_EQ(CountersOf(pool).allocated_blocks.current, 1u);
  EXPECT_EQ(Get(pool).Statistics().failed_allocations, 1u);
  CheckInvariants(Get(pool));
  const CUdeviceptr second = runtime().AllocateFrom(pool, 30 * kMiB, nullptr).value();
  EXPECT_TRUE(runtime().Free(second).ok());
  EXPECT_TRUE(runtime().Free(first).ok());
}

// One call of cuMemSetAccess serves the pool's device and the peer.
INSTANTIATE_TEST_SUITE_P(Vmm, FailingGrowth,
                         ::testing::Values(Step{"cuMemAddressReserve"}, Step{"cuMemMap"}, Step{"cuMemSetAccess"}));

class RefusedMemory : public FailingGrowth {};

TEST_P(RefusedMemory, IsToldAsOutOfMemoryWithATableOfPools) {
  const PoolHandle pool = Create(Configured("growing"));
  InjectedFault fault({.call = GetParam().call, .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 100});
  Result<CUdeviceptr> failed = runtime().AllocateFrom(pool, 30 * kMiB, nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kOutOfMemory);
  for (const char* part : {GetParam().call, "30 MiB", "growing", "reserved", "largest free"}) {
    EXPECT_NE(failed.status().message().find(part), std::string::npos) << failed.status().message();
  }
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 0u);
}

INSTANTIATE_TEST_SUITE_P(Vmm, RefusedMemory,
                         ::testing::Values(Step{"cuMemCreate"}, Step{"cuMemAddressReserve"}, Step{"cuMemMap"},
                                           Step{"cuMemSetAccess"}));

class FailingFence : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }
};

TEST_F(FailingFence, KeepsTheBlockFromEveryOtherUserUntilItIsRecorded) {
  const TestStream other;
  const PoolHandle pool = Create(Configured("fenced"));
  const CUdeviceptr address = runtime().AllocateFrom(pool, kMiB, nullptr).value();
  ASSERT_TRUE(runtime().RecordStream(address, other.get()).ok());
  {
    InjectedFault fault({.call = "cuEventRecord", .result = CUDA_ERROR_UNKNOWN});
    ExpectFailure(runtime().Free(address), StatusCode::kDriverError, "cuEventRecord");
  }
  EXPECT_EQ(runtime().Free(address).code(), StatusCode::kNotFound);
  const CUdeviceptr next = runtime().AllocateFrom(pool, kMiB, nullptr).value();
  EXPECT_NE(next, address);
  EXPECT_TRUE(runtime().Free(next).ok());
  // The first records it, the second finds that it has passed.
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(CountersOf(pool).pending_bytes, kMiB);
    EXPECT_TRUE(Get(pool).mode().Reclaim().ok());
    EXPECT_EQ(cuda().cuStreamSynchronize(other.get()), CUDA_SUCCESS);
  }
  EXPECT_EQ(CountersOf(pool).pending_bytes, 0u);
}

class FailingShrinking : public PoolTest {
 protected:
  static constexpr uint64_t kPage = 2 * kMiB;

  FailingShrinking() {
    configuration_ = Configured("shrinking");
    configuration_.mode = Mode::kExpandable;
    configuration_.segment_bytes = kPage;
  }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("it makes driver calls fail"); }

  PoolConfiguration configuration_;
};

TEST_F(FailingShrinking, KeepsPagesThatCannotBeUnmappedInUse) {
  const PoolHandle pool = Create(configuration_);
  ASSERT_TRUE(runtime().Free(runtime().AllocateFrom(pool, 4 * kPage, nullptr).value()).ok());
  const uint64_t reserved = CountersOf(pool).reserved_bytes.current;
  {
    InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN, .skip = 1});
    EXPECT_EQ(Get(pool).Trim(0).status().code(), StatusCode::kDriverError);
  }
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, reserved - kPage) << "the first was given back";
  CheckInvariants(Get(pool));
  const CUdeviceptr again = runtime().AllocateFrom(pool, 3 * kPage, nullptr).value();
  Fill(nullptr, again, 3 * kPage, 1);
  EXPECT_TRUE(runtime().Free(again).ok());
  EXPECT_TRUE(Get(pool).Trim(0).ok()) << "asked again, the driver unmaps them";
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u);
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
}

TEST_F(FailingShrinking, CountsASegmentThatCannotBeUnmappedUntilALaterCallReleasesIt) {
  const MemoryAccount& account = runtime().devices().Get(0).value()->account();
  const PoolHandle pool = Create(Configured("fixed"));
  const auto close = [&] { return Get(pool).Close(); };
  const auto trim = [&] { return Get(pool).Trim(0).status(); };
  const std::function<Status()> calls[] = {trim, close};
  for (const auto& call : calls) {
    ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
    for (int time = 0; time < 2; ++time) {
      const InjectedFault fault({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
      EXPECT_EQ(call().code(), StatusCode::kDriverError);
      EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 0u) << "it serves nobody";
      EXPECT_EQ(account.taken(), 4 * kMiB) << "the device has so much less";
    }
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(account.taken(), 0u);
  }
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
}

TEST_F(FailingShrinking, TellsWhatWentAndItsOwnFailureBesideARefusedSegment) {
  const PoolHandle pool = Create(Configured("fixed"));
  const auto fail = [](const char* call) { return Fault{.call = call, .result = CUDA_ERROR_UNKNOWN}; };
  ASSERT_TRUE(Get(pool).mode().Reserve(4 * kMiB).ok());
  {
    const InjectedFault fault(fail("cuMemUnmap"));
    ASSERT_FALSE(Get(pool).Trim(0).ok());
  }
  ASSERT_TRUE(Get(pool).mode().Reserve(8 * kMiB).ok());
  {
    const InjectedFault again(fail("cuMemUnmap"));
    const InjectedFault own(fail("cuCtxSynchronize"));
    const std::string message = Get(pool).Trim(0).status().message();
    EXPECT_NE(message.find("cuCtxSynchronize"), std::string::npos) << message;
  }
  {
    const InjectedFault again(fail("cuMemUnmap"));
    EXPECT_EQ(Get(pool).mode().ReleaseUnused(Wait::kYes), 8 * kMiB);
  }
  EXPECT_TRUE(Get(pool).Trim(0).ok());
}

TEST_F(FailingShrinking, ForgetsPagesThatTheDriverUnmappedAndDidNotTakeBack) {
  AllowLeak("physical memory");
  const PoolHandle pool = Create(configuration_);
  ASSERT_TRUE(runtime().Free(runtime().AllocateFrom(pool, 2 * kPage, nullptr).value()).ok());
  {
    InjectedFault fault({.call = "cuMemRelease", .result = CUDA_ERROR_UNKNOWN});
    EXPECT_EQ(Get(pool).Trim(0).status().code(), StatusCode::kDriverError);
  }
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, kPage);
  CheckInvariants(Get(pool));
  const CUdeviceptr again = runtime().AllocateFrom(pool, 2 * kPage, nullptr).value();
  Fill(nullptr, again, 2 * kPage, 1);
  EXPECT_TRUE(runtime().Free(again).ok());
  EXPECT_TRUE(Get(pool).Trim(0).ok());
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
}

class UserMemory : public PoolTest {};

TEST_F(UserMemory, ThatIsNotAlignedIsRefusedAndGivenBack) {
  static int freed = 0;
  freed = 0;
  PoolConfiguration configuration = Configured("user");
  configuration.backing.kind = BackingKind::kUser;
  configuration.backing.user = {
      [](ptrdiff_t, int, CUstream_st*, void*) { return reinterpret_cast<void*>(uintptr_t{0x10000001}); },
      [](void*, ptrdiff_t, int, CUstream_st*, void*) { ++freed; }, nullptr};
  const PoolHandle pool = Create(configuration);
  Result<CUdeviceptr> failed = runtime().AllocateFrom(pool, kMiB, nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("aligned to 512 bytes"), std::string::npos) << failed.status().message();
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(CountersOf(pool).reserved_segments.current, 0u);
}

}  // namespace
}  // namespace commpool::internal::testing
