// What pools leave to others of a device's memory.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Headroom : public PoolTest, public ::testing::WithParamInterface<Mode> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("nobody else may use the device"); }
  void TearDown() override {
    for (const PoolHandle pool : pools_) EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  }

  PoolHandle Make(const char* name) {
    PoolConfiguration configuration = Configured(name);
    configuration.mode = GetParam();
    pools_.push_back(Create(configuration));
    return pools_.back();
  }
  uint64_t FreeOnDevice() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(cuda().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  // Leaves so many bytes to pools.
  void LeaveToPools(uint64_t bytes) { SetHeadroom(FreeOnDevice() - bytes); }
  void SetHeadroom(uint64_t bytes) { runtime().devices().Get(0).value()->account().SetHeadroom(bytes); }
  Result<CUdeviceptr> Allocate(PoolHandle pool, uint64_t bytes) { return runtime().AllocateFrom(pool, bytes, nullptr); }
  void AllocateAndFree(PoolHandle pool, uint64_t bytes) {
    EXPECT_TRUE(runtime().Free(Allocate(pool, bytes).value()).ok());
  }
  uint64_t Reserved(PoolHandle pool) { return CountersOf(pool).reserved_bytes.current; }

 private:
  std::vector<PoolHandle> pools_;
};

INSTANTIATE_TEST_SUITE_P(Modes, Headroom, ::testing::Values(Mode::kFixed, Mode::kExpandable),
                         [](const auto& mode) { return mode.param == Mode::kFixed ? "Fixed" : "Expandable"; });

TEST_P(Headroom, IsLeftByGrowthAndNamedInItsError) {
  const PoolHandle pool = Make("pool");
  LeaveToPools(64 * kMiB);
  const CUdeviceptr fits = Allocate(pool, 48 * kMiB).value();
  ExpectFailure(Allocate(pool, 32 * kMiB).status(), StatusCode::kOutOfMemory,
                "would not leave the headroom of device 0");
  SetHeadroom(0);
  const CUdeviceptr served = Allocate(pool, 32 * kMiB).value();
  for (const CUdeviceptr block : {fits, served}) EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_P(Headroom, IsKeptByWhatOtherPoolsDoNotUse) {
  const PoolHandle idle = Make("idle");
  const PoolHandle needy = Make("needy");
  AllocateAndFree(idle, 48 * kMiB);
  LeaveToPools(16 * kMiB);
  const CUdeviceptr block = Allocate(needy, 32 * kMiB).value();
  EXPECT_EQ(Reserved(idle), 0u);
  EXPECT_TRUE(runtime().Free(block).ok());
}

TEST_P(Headroom, ComesBackInReclaimAndTrim) {
  for (const bool reclaim : {true, false}) {
    const PoolHandle pool = Make("pool");
    AllocateAndFree(pool, 48 * kMiB);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
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
