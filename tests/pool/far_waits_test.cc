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
    PoolConfiguration configuration = Configured("near");
    configuration.deadline_ms = 200;
    configuration.streams = Streams::kMayDie;
    configuration.peers = {1};
    pool_ = Create(configuration);
    const CUdeviceptr block = Allocate(nullptr);
    peer_ = PrimaryContext::Retain(driver(), 1).value();
    {
      ContextGuard guard(driver(), peer_);
      far_ = NewStream();
      work_.emplace(driver(), far_, block);
      ASSERT_TRUE(runtime().RecordStream(block, far_).ok());
    }
    ASSERT_TRUE(runtime().Free(block).ok());
    released_before_ = CallCount("cuDevicePrimaryCtxRelease");
  }
  void TearDown() override {
    EXPECT_TRUE(Get(pool_).Trim(0).ok());
    EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
    EXPECT_EQ(cuda().cuStreamDestroy(far_), CUDA_SUCCESS);
  }

  CUdeviceptr Allocate(CUstream stream) { return runtime().AllocateFrom(pool_, kBlock, stream).value(); }
  // On a new stream, which then dies.
  void Use() {
    const CUstream stream = NewStream();
    const CUdeviceptr block = Allocate(stream);
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_TRUE(runtime().Free(block).ok());
  }
  void EndWork() {
    work_->End();
    ContextGuard guard(driver(), peer_);
    EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
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
  PoolConfiguration configuration = Configured("full");
  configuration.deadline_ms = 200;
  configuration.peers = {1};
  configuration.limit_bytes = 4 * kMiB;
  const PoolHandle full = Create(configuration);
  const CUdeviceptr block = runtime().AllocateFrom(full, kBlock, nullptr).value();
  {
    ContextGuard guard(driver(), peer_);
    ASSERT_TRUE(runtime().RecordStream(block, far_).ok());
  }
  const Status refused = runtime().AllocateFrom(full, kBlock, nullptr).status();
  ExpectFailure(refused, StatusCode::kOutOfMemory, "device 1 is still busy");  // no deadline: it serves no such request
  EXPECT_NE(refused.message().find("no memory for 3 MiB"), std::string::npos) << refused.message();
  EXPECT_TRUE(runtime().Free(block).ok());
  EndWork();
}

TEST_F(FarWaits, KeepTheContextWhileTheyGoOnByThemselves) {
  while (CountersOf(pool_).host_waits == 0) Use();
  EXPECT_EQ(Released(), 0u);
  EndWork();
  // Until what the wait covers serves again.
  const auto reserved = [&] { return Get(pool_).Statistics().reserved_bytes.current; };
  for (uint64_t before = 0; before != reserved();) {
    before = reserved();
    Use();
  }
  EXPECT_EQ(Released(), 0u);
}

TEST_F(FarWaits, KeepTheContextWhereThePoolEndsBefore) {
  while (CountersOf(pool_).host_waits == 0) Use();
  EXPECT_TRUE(runtime().DestroyPool(pool_).ok());
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
