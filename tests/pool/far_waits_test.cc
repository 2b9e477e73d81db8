// A pool waits for another device than its own. That device's context stays retained, even if the pool does not wait
// any longer, or ends.
#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "src/library/pool/shared/device_state.h"
#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;

// A stream of device 1 works on a block of device 0's pool, which is free already.
class FarWaits : public PoolTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it counts calls and holds work up");
    COMMPOOL_REQUIRE_DEVICES(2);
    pool_ = CreateWith({.name = "near", .streams = Streams::kMayDie, .deadline_ms = 200, .peers = {1}});
    const CUdeviceptr block = Allocate(nullptr);
    peer_ = PrimaryContext::Retain(driver(), 1).value();
    {
      const ContextGuard guard(driver(), peer_);
      far_ = NewStream();
      work_.emplace(driver(), far_, block);
      ExpectOk(runtime().RecordStream(block, far_));
    }
    Free(block);
    released_before_ = CallCount("cuDevicePrimaryCtxRelease");
  }
  void TearDown() override {
    PoolTest::TearDown();
    EXPECT_TRUE(Get(pool_).Trim(0).ok());
    Destroy(pool_);
    DestroyStream(far_);
  }

  CUdeviceptr Allocate(CUstream stream) { return PoolTest::Allocate(pool_, kBlock, stream); }
  // On a new stream, which then dies.
  void Use() {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(stream);
    DestroyStream(stream);
    Free(block);
  }
  void EndWork() {
    work_->End();
    ContextGuard guard(driver(), peer_);
    Synchronize();
  }
  uint64_t Released() { return CallCount("cuDevicePrimaryCtxRelease") - released_before_; }

  PoolHandle pool_ = 0;
  PrimaryContext peer_;
  CUstream far_ = nullptr;
  std::optional<HeldWork> work_;
  uint64_t released_before_ = 0;
};

TEST_F(FarWaits, KeepTheContextWhereTheDeadlinePasses) {
  EXPECT_EQ(Get(pool_).blocks().WaitForDevice().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Released(), 0u);
  EndWork();
  EXPECT_TRUE(Get(pool_).blocks().WaitForDevice().ok());
}

TEST_F(FarWaits, EndAnAllocationAtItsLimitWithTheReason) {
  const PoolHandle full = CreateWith({.name = "full", .deadline_ms = 200, .peers = {1}, .limit_bytes = 4 * kMiB});
  const CUdeviceptr block = PoolTest::Allocate(full, kBlock);
  {
    const ContextGuard guard(driver(), peer_);
    ExpectOk(runtime().RecordStream(block, far_));
  }
  const Status refused = TryAllocate(full, kBlock).status();
  ExpectFailure(refused, StatusCode::kOutOfMemory, "device 1 is still busy");  // no deadline: it serves no such request
  ExpectFailure(refused, StatusCode::kOutOfMemory, "no memory for 3 MiB");
  EndWork();
}

TEST_F(FarWaits, KeepTheContextWhileTheyGoOnByThemselves) {
  while (CountersOf(pool_).host_waits == 0) Use();
  EXPECT_EQ(Released(), 0u);
  EndWork();
  // Until what the wait covers serves again.
  for (uint64_t before = 0; before != Reserved(pool_);) {
    before = Reserved(pool_);
    Use();
  }
  EXPECT_EQ(Released(), 0u);
}

TEST_F(FarWaits, KeepTheContextWhereThePoolEndsBefore) {
  while (CountersOf(pool_).host_waits == 0) Use();
  Destroy(pool_);
  EXPECT_EQ(Released(), 0u);
  EndWork();
  pool_ = Create(Configured("later"));
}

std::atomic<bool> entering{false};

// A capture that begins once the call has returned finds the wait under way: one that begins later would break it.
TEST(DeviceWaits, HaveBegunWhenTheCallThatBeginsThemReturns) {
  const PrimaryContext context = PrimaryContext::Retain(*SharedDriver(), 0).value();
  Driver slow = *SharedDriver();
  slow.cuda.cuCtxSetCurrent = [](CUcontext current) {
    for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
    entering = true;
    return SharedDriver()->cuda.cuCtxSetCurrent(current);
  };
  std::future<CUresult> wait = BeginToSynchronise(slow, context).value();
  EXPECT_TRUE(entering);
  EXPECT_EQ(wait.get(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal::testing
