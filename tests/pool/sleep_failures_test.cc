// Each driver call inside falling asleep and waking fails once: the pool is as before, and nothing is lost.
#include "src/library/pool/group_calls.h"
#include "tests/pool/pool_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

struct Failure {
  const char* call;
  int result;
};

class SleepFailure : public PoolTestInEachMode {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected");
    pool_ = Create(InMode("sleeper"));
    for (CUdeviceptr& block : blocks_) {  // the last block is small, and lies in its own segment
      block = Allocate(pool_, &block == &blocks_.back() ? 4096 : 5 * kMiB);
      Fill(nullptr, block, 4096, 9);
    }
    Synchronize();
    reserved_ = Reserved(pool_);
  }
  void TearDown() override {
    if (pool_ == 0) return;
    for (const CUdeviceptr block : blocks_) ExpectBytes(nullptr, block, 4096, 9);
    PoolTest::TearDown();
    CheckInvariants(pool());
    Destroy(pool_);
  }

  Pool& pool() { return Get(pool_); }
  Status Sleep() { return SleepAlone(pool(), {.keep = Keep::kHost}); }
  Status Wake() { return WakeAlone(pool()); }
  // Asleep or awake, with so much that has left its addresses, and what the host keeps.
  void ExpectState(bool asleep, uint64_t asleep_bytes, uint64_t kept_bytes) {
    EXPECT_EQ(pool().basis().life.asleep(), asleep);
    EXPECT_EQ(pool().basis().life.open(), !asleep);
    EXPECT_EQ(pool().Statistics().asleep_bytes, asleep_bytes);
    EXPECT_EQ(pool().Statistics().kept_bytes, kept_bytes);
  }
  // Lets the call fail at its first, second, ... time, until `act` meets no failure; `after` checks each.
  template <typename Act, typename After>
  void FailEachTime(const Failure& failure, Act act, After after) {
    int failures = 0;
    for (int skip = 0;; ++skip) {
      Status status;
      {
        const InjectedFault fault({.call = failure.call, .result = failure.result, .skip = skip});
        status = act();
      }
      if (status.ok()) break;
      EXPECT_NE(status.message().find(failure.call), std::string::npos) << status.message();
      after();
      ASSERT_LT(++failures, 200) << failure.call;
    }
    EXPECT_GT(failures, 0) << failure.call << " is no part of it";
  }

  PoolHandle pool_ = 0;
  std::array<CUdeviceptr, 4> blocks_ = {};
  uint64_t reserved_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Modes, SleepFailure, EachMode(), NameOfMode);

TEST_P(SleepFailure, OfAnotherPoolOfTheCallNamesWhoCannotComeBack) {
  const PoolHandle cannot = CreateWith({.name = "cannot", .kind = BackingKind::kCuda});
  const std::array<PoolHandle, 2> both = {pool_, cannot};
  Status status;
  {
    const InjectedFault no_way_back({"cuMemMap", CUDA_ERROR_INVALID_VALUE});
    status = AllOrNone(
        runtime(), both, [](Pool& pool, OtherPoolsOfCall others) { return pool.Sleep({.keep = Keep::kHost}, others); },
        Oldest::kLast);
  }
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  EXPECT_EQ(status.message().find("pool cannot"), 0u) << status.message();
  EXPECT_NE(status.message().find("; then pool sleeper"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("the pool is asleep, wake() it"), std::string::npos) << status.message();
  EXPECT_TRUE(pool().basis().life.asleep());
  ExpectOk(Wake());
}

TEST_P(SleepFailure, OfFallingAsleepLeavesThePoolAwakeAndWhole) {
  for (const Failure failure :
       {Failure{"cuMemAllocHost", CUDA_ERROR_OUT_OF_MEMORY}, Failure{"cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY},
        Failure{"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE}, Failure{"cuStreamSynchronize", CUDA_ERROR_INVALID_VALUE},
        Failure{"cuMemUnmap", CUDA_ERROR_INVALID_VALUE}}) {
    FailEachTime(
        failure, [&] { return Sleep(); },
        [&] {
          ExpectState(false, 0, 0);
          Free(Allocate(pool_, kMiB));
        });
    ASSERT_TRUE(pool().basis().life.asleep());
    ExpectOk(Wake());
  }
}

// The failure may be that a kernel still runs on the memory.
TEST_P(SleepFailure, BeforeTheUnmappingTouchesNoMapping) {
  {
    const InjectedFault keeping({.call = "cuMemAllocHost", .result = CUDA_ERROR_OUT_OF_MEMORY});
    const InjectedFault opening({.call = "cuMemSetAccess", .result = CUDA_ERROR_INVALID_VALUE, .count = 10000});
    const uint64_t unmapped = CallCount("cuMemUnmap");
    EXPECT_FALSE(Sleep().ok());
    EXPECT_EQ(CallCount("cuMemUnmap"), unmapped);
  }
  EXPECT_TRUE(pool().basis().life.open());
}

TEST_P(SleepFailure, OfACopyWaitsForTheOthersBeforeTheirMemoryGoes) {
  const auto waits_of = [&](const auto& act) {
    const uint64_t before = CallCount("cuCtxSynchronize");
    act();
    return CallCount("cuCtxSynchronize") - before;
  };
  const uint64_t waits = waits_of([&] {
    const InjectedFault fault({.call = "cuMemcpyAsync", .result = CUDA_ERROR_INVALID_VALUE, .skip = 1});
    EXPECT_FALSE(Sleep().ok());
  });
  EXPECT_EQ(waits_of([&] { ExpectOk(Sleep()); }), waits - 1);
  ExpectOk(Wake());
}

TEST_P(SleepFailure, OfWakingLeavesThePoolAsleepWithWhatItKept) {
  for (const Failure failure :
       {Failure{"cuMemMap", CUDA_ERROR_INVALID_VALUE}, Failure{"cuMemSetAccess", CUDA_ERROR_INVALID_VALUE},
        Failure{"cuStreamCreate", CUDA_ERROR_INVALID_VALUE}, Failure{"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE},
        Failure{"cuStreamSynchronize", CUDA_ERROR_INVALID_VALUE}}) {
    ExpectOk(Sleep());
    const uint64_t kept = pool().Statistics().kept_bytes;
    FailEachTime(
        failure, [&] { return Wake(); }, [&] { ExpectState(true, Reserved(pool_), kept); });
    ASSERT_FALSE(pool().basis().life.asleep());
  }
}

TEST_P(SleepFailure, WithoutMemoryToWakeSaysTheBytesAndSleepsOn) {
  ExpectOk(Sleep());
  {
    const InjectedFault fault({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1, .count = 10000});
    ExpectFailure(Wake(), StatusCode::kOutOfMemory, "wake: waking " + FormatBytes(reserved_));
  }
  EXPECT_EQ(pool().Statistics().asleep_bytes, reserved_);
  ExpectOk(Wake());
}

// A later piece fails while copies to the first piece run.
TEST_P(SleepFailure, OfASecondPieceWaitsForTheCopiesAndKeepsTheHostsMemory) {
  for (const Failure failure :
       {Failure{"cuMemSetAccess", CUDA_ERROR_INVALID_VALUE}, Failure{"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY}}) {
    ExpectOk(Sleep());
    const uint64_t kept = pool().Statistics().kept_bytes;
    const uint64_t before = CallCount(failure.call);
    ExpectOk(Wake());
    const int calls = static_cast<int>(CallCount(failure.call) - before);
    ASSERT_GE(calls, 2);
    ExpectOk(Sleep());
    const uint64_t copied = CallCount("cuMemcpyAsync");
    const uint64_t awaited = CallCount("cuStreamSynchronize");
    {
      const InjectedFault fault({.call = failure.call, .result = failure.result, .skip = calls - 1, .count = 10000});
      EXPECT_FALSE(Wake().ok());
    }
    EXPECT_GT(CallCount("cuMemcpyAsync"), copied) << "nothing was copied while memory was mapped";
    EXPECT_GT(CallCount("cuStreamSynchronize"), awaited) << "memory went under a copy";
    ExpectState(true, reserved_, kept);
    ExpectOk(Wake());
  }
}

TEST_P(SleepFailure, OfAnUndoLeavesThePoolAsleepWithItsContents) {
  {
    const InjectedFault unmapping({.call = "cuMemUnmap", .result = CUDA_ERROR_INVALID_VALUE, .skip = 1});
    const InjectedFault mapping({.call = "cuMemMap", .result = CUDA_ERROR_INVALID_VALUE, .count = 10000});
    EXPECT_FALSE(SleepAlone(pool(), {}).ok());
  }
  EXPECT_TRUE(pool().basis().life.asleep());
  ExpectOk(Wake());
  EXPECT_EQ(pool().Statistics().asleep_bytes, 0u);
}

}  // namespace
}  // namespace commpool::internal::testing
