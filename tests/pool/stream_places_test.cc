// Each device has default streams of its own, and memory that several devices use is reused in the order of them all.
// Where memory serves too early, bytes are wrong, and the emulator's race checker says so at the end of a test.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/pool/held_work.h"
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;

// Work of a stream that writes a block once the test lets it.
class HeldWrite : public HeldStream {
 public:
  HeldWrite(const CudaDriver& cuda, CUstream stream, CUdeviceptr block) : HeldStream(cuda, stream) {
    EXPECT_EQ(cuda.cuMemsetD8Async(block, 5, kBlock, stream), CUDA_SUCCESS);
  }
};

class StreamPlacesOfPools : public PoolTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_DEVICES(2);
    int reaches = 0;
    ASSERT_EQ(cuda().cuDeviceCanAccessPeer(&reaches, 0, 1), CUDA_SUCCESS);
    if (reaches == 0) GTEST_SKIP() << "device 0 cannot access the memory of device 1";
  }
  void TearDown() override {
    PoolTest::TearDown();
    for (const CUstream stream : streams_) DestroyStream(stream);
  }

  // On the device that is current.
  CUstream NewStream() {
    const CUstream stream = PoolTest::NewStream();
    EXPECT_TRUE(runtime().PromiseStream(stream).ok());
    streams_.push_back(stream);
    return stream;
  }
  CUdeviceptr Allocate(PoolHandle pool, CUstream stream) { return PoolTest::Allocate(pool, kBlock, stream); }
  // Writes a block behind the work of another device, which ends then.
  void ExpectWrittenBehind(HeldWrite& work, CUdeviceptr next, CUstream stream) {
    EXPECT_EQ(cuda().cuMemsetD8Async(next, 9, kBlock, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "it ran beside the work of the other device";
    work.End();
    Synchronize(stream);
  }
  // A pool of device 1 that device 0 may use, with room for one block.
  PoolHandle CreateForBoth() {
    return CreateWith({.name = "both", .device = 1, .peers = {0}, .limit_bytes = 4 * kMiB});
  }
  // What was freed while device 0 worked on it serves device 1 only behind that work.
  void ExpectServedBehind(PoolHandle pool, HeldWrite& work, CUstream busy) {
    const ContextGuard here(driver(), far_);
    const CUstream stream = NewStream();
    const CUdeviceptr next = Allocate(pool, stream);
    ExpectWrittenBehind(work, next, stream);
    {
      const ContextGuard there(driver(), near_);
      Synchronize(busy);
    }
    ExpectBytes(stream, next, kBlock, 9);
    Free(next);
  }

  const PrimaryContext near_ = PrimaryContext::Retain(driver(), 0).value();
  // A machine of one device skips every case.
  const PrimaryContext far_ = PrimaryContext::Retain(driver(), std::min(1, DeviceCountOfTests() - 1)).value();
  std::vector<CUstream> streams_;
};

TEST_F(StreamPlacesOfPools, PinnedMemoryServesNobodyWhileAnotherDevicesDefaultStreamUsesIt) {
  const PoolHandle pool = CreateWith({.name = "pinned", .kind = BackingKind::kPinned});
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    std::optional<HeldWrite> work;
    CUdeviceptr block = 0;
    {
      const ContextGuard there(driver(), far_);
      block = Allocate(pool, stream);
      work.emplace(cuda(), stream, block);
      Free(block);
    }
    const CUdeviceptr other = Allocate(pool, stream);
    EXPECT_NE(other, block);
    work->End();
    Free(other);
    EXPECT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  }
}

TEST_F(StreamPlacesOfPools, ABlockRecordedOnAPeersDefaultStreamServesBehindThatStream) {
  const PoolHandle pool = CreateForBoth();
  std::optional<HeldWrite> work;
  {
    const ContextGuard there(driver(), far_);
    const CUdeviceptr block = Allocate(pool, NewStream());
    const ContextGuard here(driver(), near_);
    work.emplace(cuda(), nullptr, block);
    ASSERT_TRUE(runtime().RecordStream(block, nullptr).ok());
    Free(block);
  }
  ExpectServedBehind(pool, *work, nullptr);
}

TEST_F(StreamPlacesOfPools, ABlockThatAPeersStreamAskedForServesBehindThatStream) {
  const PoolHandle pool = CreateForBoth();
  const CUstream own = NewStream();
  for (const CUstream stream : {own, CUstream{nullptr}, CU_STREAM_PER_THREAD}) {
    const CUdeviceptr block = Allocate(pool, stream);
    HeldWrite work(cuda(), stream, block);
    Free(block);
    ExpectServedBehind(pool, work, stream);
    EXPECT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  }
}

// The program means the pool's own default stream, although it has left another device current.
TEST_F(StreamPlacesOfPools, AProgramThatLeavesAPeerCurrentMayUseThePoolsOwnDefaultStream) {
  const PoolHandle pool = CreateForBoth();
  const CUdeviceptr block = Allocate(pool, nullptr);
  std::optional<HeldWrite> work;
  {
    const ContextGuard there(driver(), far_);
    work.emplace(cuda(), nullptr, block);
  }
  Free(block);
  const ContextGuard there(driver(), far_);
  const CUstream stream = NewStream();
  const CUdeviceptr next = Allocate(pool, stream);
  ExpectWrittenBehind(*work, next, stream);
  ExpectBytes(stream, next, kBlock, 9);
}

// The block would serve that stream too, which can wait for nothing outside of its capture.
TEST_F(StreamPlacesOfPools, AProgramThatLeavesAPeerCurrentIsRefusedWhileThePoolsOwnDefaultStreamCaptures) {
  const PoolHandle pool = CreateForBoth();
  CUgraph graph = nullptr;
  {
    const ContextGuard there(driver(), far_);
    ASSERT_EQ(cuda().cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  }
  ExpectFailure(TryAllocate(pool, kBlock, CU_STREAM_PER_THREAD).status(), StatusCode::kFailedPrecondition,
                "make the pool's device current");
  const ContextGuard there(driver(), far_);
  EXPECT_EQ(cuda().cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS) << "it is whole";
  if (graph != nullptr) cuda().cuGraphDestroy(graph);
  Free(Allocate(pool, CU_STREAM_PER_THREAD));
}

TEST_F(StreamPlacesOfPools, APoolThatOnlyItsOwnDeviceUsesAsksNobodyForTheDefaultStream) {
  EXPECT_EQ(Get(Create(Configured("own", /*device=*/1))).PlaceOfDefaultStreams(), std::optional<int>(1));
  EXPECT_EQ(Get(CreateForBoth()).PlaceOfDefaultStreams(), std::nullopt);
}

TEST_F(StreamPlacesOfPools, APoolThatGetsAPeerAsksFromThenOn) {
  const PoolHandle pool = CreateWith({.name = "later", .device = 1, .limit_bytes = 4 * kMiB});
  Free(Allocate(pool, nullptr));
  EXPECT_TRUE(Get(pool).segments().peers.Grant({0}).ok());
  const CUdeviceptr block = Allocate(pool, nullptr);
  HeldWrite work(cuda(), nullptr, block);
  Free(block);
  ExpectServedBehind(pool, work, nullptr);
}

// A server, or std::async: each thread has a default stream of its own, which ends with it.
TEST_F(StreamPlacesOfPools, WhatEndedThreadsDefaultStreamsFreedServesOthers) {
  const PoolHandle pool = Create(Configured("threads"));
  for (int number = 0; number < 300; ++number) {
    std::thread([&] {
      const ContextGuard here(driver(), near_);
      const CUdeviceptr block = Allocate(pool, CU_STREAM_PER_THREAD);
      Fill(CU_STREAM_PER_THREAD, block, kBlock, 7);
      Free(block);
    }).join();
  }
  EXPECT_LE(CountersOf(pool).reserved_bytes.peak, 128 * kMiB) << "one block is live at a time";
}

TEST_F(StreamPlacesOfPools, AWaitForThePoolsMemoryWaitsForTheDevicesOfItsStreams) {
  const PoolHandle pool = CreateWith({.name = "busy", .device = 1, .deadline_ms = 100, .peers = {0}});
  const CUdeviceptr block = Allocate(pool, nullptr);
  HeldWrite work(cuda(), nullptr, block);
  EXPECT_EQ(Get(pool).blocks().WaitForDevice().code(), StatusCode::kDeadlineExceeded)
      << "a live block's stream counts, too";
  work.End();
  EXPECT_TRUE(Get(pool).blocks().WaitForDevice().ok());
}

// A default stream belongs to the context that is current. Of contexts that are no primary ones pools know nothing.

// Such as cuCtxCreate and green contexts make: here only the driver's answers about what is current.
const auto kForeign = reinterpret_cast<CUcontext>(0x40);
std::atomic<bool> foreign_is_current{false};

CUresult GetCurrent(CUcontext* context) {
  if (!foreign_is_current) return SharedDriver()->cuda.cuCtxGetCurrent(context);
  *context = kForeign;
  return CUDA_SUCCESS;
}

CUresult SetCurrent(CUcontext context) {
  return context == kForeign ? CUDA_SUCCESS : SharedDriver()->cuda.cuCtxSetCurrent(context);
}

std::shared_ptr<const Driver> DriverWithForeignContext() {
  auto driver = std::make_shared<Driver>(*SharedDriver());
  driver->cuda.cuCtxGetCurrent = GetCurrent;
  driver->cuda.cuCtxSetCurrent = SetCurrent;
  return driver;
}

class ForeignContexts : public PoolTest {
 protected:
  ForeignContexts() : PoolTest(DriverWithForeignContext()) {}
  ~ForeignContexts() override { foreign_is_current = false; }
};

TEST_F(ForeignContexts, HaveNoDefaultStreamForAPool) {
  const PoolHandle pool = CreateWith({.name = "primary", .streams = Streams::kMayDie});
  foreign_is_current = true;
  ExpectFailure(TryAllocate(pool, 4 * kMiB).status(), StatusCode::kNotSupported, "not its primary context");
  foreign_is_current = false;
  Allocate(pool, 4 * kMiB);
}

}  // namespace
}  // namespace commpool::internal::testing
