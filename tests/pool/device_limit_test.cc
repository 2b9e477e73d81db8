// One limit for all pools of a device, in any mode, and what they leave to others.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kLimit = 32 * kMiB;

class DeviceLimit : public PoolTest {
 protected:
  DeviceLimit() { account().SetLimit(kLimit); }

  MemoryAccount& account(int device = 0) { return runtime().devices().Get(device).value()->account(); }
  static void ExpectNamesTheLimit(const Status& status) {
    ExpectFailure(status, StatusCode::kOutOfMemory, "the limit of device 0, 32 MiB");
  }
  PoolHandle CreateExpandable() { return CreateWith({.name = "expandable", .mode = Mode::kExpandable}); }
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
  Free(Allocate(idle, kLimit));
  Allocate(CreateWith({.name = "needy", .limit_bytes = kLimit}), kLimit);  // its own limit is full too
  EXPECT_EQ(Reserved(idle), 0u);
}

TEST_F(DeviceLimit, IsSharedByTwoPools) {
  const PoolHandle first = Create(Configured("first"));
  const PoolHandle second = Create(Configured("second"));
  Allocate(first, 24 * kMiB);
  ExpectNamesTheLimit(TryAllocate(second, 10 * kMiB).status());
  ExpectNamesTheLimit(Get(second).mode().Reserve(10 * kMiB));
  Allocate(second, 8 * kMiB);
  EXPECT_EQ(account().Room(), 0u);
}

TEST_F(DeviceLimit, IsSharedWithAnExpandablePool) {
  const PoolHandle fixed = Create(Configured("fixed"));
  const PoolHandle expandable = CreateExpandable();
  Allocate(fixed, 24 * kMiB);
  ExpectNamesTheLimit(TryAllocate(expandable, 10 * kMiB).status());
  Allocate(expandable, 8 * kMiB);
  ExpectNamesTheLimit(TryAllocate(fixed, 2 * kMiB).status());
}

TEST_F(DeviceLimit, IsMetByFreeMemoryOfOtherPools) {
  const PoolHandle idle = Create(Configured("idle"));
  const PoolHandle needy = Create(Configured("needy"));
  ASSERT_TRUE(Get(idle).mode().Reserve(24 * kMiB).ok());
  Allocate(needy, 24 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
}

TEST_F(DeviceLimit, BelowWhatIsReservedLetsItStayAndServe) {
  const PoolHandle pool = Create(Configured("early"));
  ASSERT_TRUE(Get(pool).mode().Reserve(24 * kMiB).ok());
  account().SetLimit(4 * kMiB);
  Allocate(pool, 20 * kMiB);
  EXPECT_EQ(Reserved(pool), 24 * kMiB);
  EXPECT_EQ(TryAllocate(pool, 8 * kMiB).status().code(), StatusCode::kOutOfMemory);
  account().SetLimit(UINT64_MAX);
  Allocate(pool, 8 * kMiB);
}

TEST_F(DeviceLimit, GetsBackWhatPoolsGiveBack) {
  for (const PoolHandle pool : {Create(Configured("fixed")), CreateExpandable()}) {
    Free(Allocate(pool, 20 * kMiB));
    EXPECT_LT(account().Room(), kLimit);
    EXPECT_TRUE(Get(pool).Trim(0).ok());
    EXPECT_EQ(account().Room(), kLimit);
  }
}

TEST_F(DeviceLimit, GetsBackWhatADestroyedPoolHeld) {
  const PoolHandle pool = Create(Configured("short"));
  Free(Allocate(pool, 20 * kMiB));
  Destroy(pool);
  EXPECT_EQ(account().Room(), kLimit);
}

TEST_F(DeviceLimit, LosesNothingByAGrowthThatFails) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  for (const PoolHandle pool : {Create(Configured("fixed")), CreateExpandable()}) {
    for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
      const InjectedFault always({.call = call, .result = CUDA_ERROR_OUT_OF_MEMORY, .count = 1000});
      EXPECT_FALSE(TryAllocate(pool, 8 * kMiB).ok()) << call;
      EXPECT_EQ(account().Room(), kLimit) << call;
    }
  }
}

TEST_F(DeviceLimit, LeavesOtherDevicesAlone) {
  COMMPOOL_REQUIRE_DEVICES(2);
  Free(Allocate(Create(Configured("far", 1)), 2 * kLimit));
  EXPECT_EQ(account().Room(), kLimit);
}

TEST_F(DeviceLimit, DoesNotCountTheHostsMemory) {
  COMMPOOL_REQUIRE_EMULATOR("a host's nodes differ");
  PoolConfiguration configuration = Configured("host");
  configuration.backing.placement = {.kind = Placement::Kind::kHostNuma, .numa_node = 0};
  Free(Allocate(Create(configuration), 2 * kLimit));
  EXPECT_EQ(account().Room(), kLimit);
}

class Headroom : public PoolTestInEachMode {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("nobody else may use the device"); }
  PoolHandle Make(const char* name) { return Create(InMode(name)); }
  uint64_t FreeOnDevice() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  // Leaves so many bytes to pools.
  void LeaveToPools(uint64_t bytes) { SetHeadroom(FreeOnDevice() - bytes); }
  void SetHeadroom(uint64_t bytes) { runtime().devices().Get(0).value()->account().SetHeadroom(bytes); }
  void AllocateAndFree(PoolHandle pool, uint64_t bytes) { Free(Allocate(pool, bytes)); }
};

INSTANTIATE_TEST_SUITE_P(Modes, Headroom, EachMode(), NameOfMode);

TEST_P(Headroom, IsLeftByGrowthAndNamedInItsError) {
  const PoolHandle pool = Make("pool");
  LeaveToPools(64 * kMiB);
  Allocate(pool, 48 * kMiB);
  ExpectFailure(TryAllocate(pool, 32 * kMiB).status(), StatusCode::kOutOfMemory,
                "would not leave the headroom of device 0");
  SetHeadroom(0);
  Allocate(pool, 32 * kMiB);
}

TEST_P(Headroom, IsKeptByWhatOtherPoolsDoNotUse) {
  const PoolHandle idle = Make("idle");
  const PoolHandle needy = Make("needy");
  AllocateAndFree(idle, 48 * kMiB);
  LeaveToPools(16 * kMiB);
  Allocate(needy, 32 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
}

TEST_P(Headroom, ComesBackInReclaimAndTrim) {
  for (const bool reclaim : {true, false}) {
    const PoolHandle pool = Make("pool");
    AllocateAndFree(pool, 48 * kMiB);
    Synchronize();
    SetHeadroom(FreeOnDevice() + 16 * kMiB);
    EXPECT_TRUE((reclaim ? Get(pool).mode().Reclaim() : Get(pool).Trim(UINT64_MAX)).ok());
    EXPECT_LE(Reserved(pool), 32 * kMiB);
    SetHeadroom(0);
  }
}

TEST_P(Headroom, AsksTheDriverAtGrowthAlone) {
  const PoolHandle pool = Make("pool");
  LeaveToPools(kGiB);
  AllocateAndFree(pool, 8 * kMiB);
  const uint64_t asked = CallCount("cuMemGetInfo");
  for (int pair = 0; pair < 8; ++pair) AllocateAndFree(pool, 8 * kMiB);
  EXPECT_EQ(CallCount("cuMemGetInfo"), asked);
}

// A driver that does not tell how much is free is no reason to fail.
TEST_P(Headroom, IsNoReasonToFailWhereTheDriverDoesNotTell) {
  const PoolHandle pool = Make("pool");
  SetHeadroom(UINT64_MAX);
  const InjectedFault fault({.call = "cuMemGetInfo", .result = CUDA_ERROR_NOT_SUPPORTED, .count = 8});
  AllocateAndFree(pool, 8 * kMiB);
}

}  // namespace
}  // namespace commpool::internal::testing
