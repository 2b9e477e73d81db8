// One limit for all pools of a device, in any mode.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kLimit = 32 * kMiB;

class DeviceLimit : public PoolTest {
 protected:
  DeviceLimit() { account().SetLimit(kLimit); }

  MemoryAccount& account(int device = 0) { return runtime().devices().Get(device).value()->account(); }
  Result<CUdeviceptr> Allocate(PoolHandle pool, uint64_t bytes) { return runtime().AllocateFrom(pool, bytes, nullptr); }
  CUdeviceptr MustAllocate(PoolHandle pool, uint64_t bytes) {
    Result<CUdeviceptr> block = Allocate(pool, bytes);
    EXPECT_TRUE(block.ok()) << block.status().message();
    return block.ok() ? *block : 0;
  }
  static void ExpectNamesTheLimit(const Status& status) {
    ExpectFailure(status, StatusCode::kOutOfMemory, "the limit of device 0, 32 MiB");
  }
  PoolHandle CreateExpandable() {
    PoolConfiguration configuration = Configured("expandable");
    configuration.mode = Mode::kExpandable;
    return expandable_ = Create(configuration);
  }
  // An idle pool keeps its address range until its end, unlike segments.
  void TearDown() override {
    if (expandable_ == 0) return;
    EXPECT_TRUE(runtime().DestroyPool(expandable_).ok());
  }

 private:
  PoolHandle expandable_ = 0;
};

TEST_F(DeviceLimit, IsOfADeviceThatIsDescribedOnce) {
  COMMPOOL_REQUIRE_EMULATOR("it counts calls");
  MemoryAccount& known = account();
  const uint64_t calls = CallCount("*");
  EXPECT_EQ(&account(), &known);
  EXPECT_EQ(CallCount("*"), calls);
}

TEST_F(DeviceLimit, ServesOneRequestForAllOfIt) {
  const PoolHandle idle = Create(Configured("idle"));
  Free(MustAllocate(idle, kLimit));
  PoolConfiguration configuration = Configured("needy");
  configuration.limit_bytes = kLimit;  // its own limit is full too
  const PoolHandle needy = Create(configuration);
  const CUdeviceptr all = MustAllocate(needy, kLimit);
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 0u);
  Free(all);
}

TEST_F(DeviceLimit, IsSharedByTwoPools) {
  const PoolHandle first = Create(Configured("first"));
  const PoolHandle second = Create(Configured("second"));
  const CUdeviceptr in_first = MustAllocate(first, 24 * kMiB);
  ExpectNamesTheLimit(Allocate(second, 10 * kMiB).status());
  ExpectNamesTheLimit(Get(second).mode().Reserve(10 * kMiB));
  const CUdeviceptr in_second = MustAllocate(second, 8 * kMiB);
  EXPECT_EQ(account().Room(), 0u);
  Free(in_first);
  Free(in_second);
}

TEST_F(DeviceLimit, IsSharedWithAnExpandablePool) {
  const PoolHandle fixed = Create(Configured("fixed"));
  const PoolHandle expandable = CreateExpandable();
  const CUdeviceptr in_fixed = MustAllocate(fixed, 24 * kMiB);
  ExpectNamesTheLimit(Allocate(expandable, 10 * kMiB).status());
  const CUdeviceptr in_expandable = MustAllocate(expandable, 8 * kMiB);
  ExpectNamesTheLimit(Allocate(fixed, 2 * kMiB).status());
  Free(in_fixed);
  Free(in_expandable);
}

TEST_F(DeviceLimit, IsMetByFreeMemoryOfOtherPools) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle needy = Create(Configured("needy"));
  ASSERT_TRUE(Get(idle).mode().Reserve(24 * kMiB).ok());
  const CUdeviceptr block = MustAllocate(needy, 24 * kMiB);
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 0u);
  Free(block);
}

TEST_F(DeviceLimit, BelowWhatIsReservedLetsItStayAndServe) {
  const PoolHandle pool = Create(Configured("early"));
  ASSERT_TRUE(Get(pool).mode().Reserve(24 * kMiB).ok());
  account().SetLimit(4 * kMiB);
  const CUdeviceptr block = MustAllocate(pool, 20 * kMiB);
  EXPECT_EQ(CountersOf(pool).reserved_bytes.current, 24 * kMiB);
  EXPECT_EQ(Allocate(pool, 8 * kMiB).status().code(), StatusCode::kOutOfMemory);
  account().SetLimit(UINT64_MAX);
  const CUdeviceptr another = MustAllocate(pool, 8 * kMiB);
  Free(block);
  Free(another);
}

TEST_F(DeviceLimit, GetsBackWhatPoolsGiveBack) {
  for (const PoolHandle pool : {Create(Configured("fixed")), CreateExpandable()}) {
    Free(MustAllocate(pool, 20 * kMiB));
    EXPECT_LT(account().Room(), kLimit);
    EXPECT_TRUE(Get(pool).Trim(0).ok());
    EXPECT_EQ(account().Room(), kLimit);
  }
}

TEST_F(DeviceLimit, GetsBackWhatADestroyedPoolHeld) {
  const PoolHandle pool = Create(Configured("short"));
  Free(MustAllocate(pool, 20 * kMiB));
  EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  EXPECT_EQ(account().Room(), kLimit);
}

TEST_F(DeviceLimit, LosesNothingByAGrowthThatFails) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  for (const PoolHandle pool : {Create(Configured("fixed")), CreateExpandable()}) {
    for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
      const InjectedFault always({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 1000});
      EXPECT_FALSE(Allocate(pool, 8 * kMiB).ok()) << call;
      EXPECT_EQ(account().Room(), kLimit) << call;
    }
  }
}

TEST_F(DeviceLimit, LeavesOtherDevicesAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  const PoolHandle far = Create(Configured("far", 1));
  Free(MustAllocate(far, 2 * kLimit));
  EXPECT_EQ(account().Room(), kLimit);
}

TEST_F(DeviceLimit, DoesNotCountTheHostsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("a host's nodes differ");
  PoolConfiguration configuration = Configured("host");
  configuration.backing.placement.kind = Placement::Kind::kHostNuma;
  configuration.backing.placement.numa_node = 0;
  Free(MustAllocate(Create(configuration), 2 * kLimit));
  EXPECT_EQ(account().Room(), kLimit);
}

}  // namespace
}  // namespace commpool::internal::testing
