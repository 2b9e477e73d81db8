// Each device has default streams of its own, and memory that several devices use is reused in the order of them all.
// Where memory serves too early, bytes are wrong, and the emulator's race checker says so at the end of a test.
#include <algorithm>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr uint64_t kBlock = 3 * kMiB;

// Work of a stream that writes a block once the test lets it.
class HeldWrite {
 public:
  HeldWrite(const CudaDriver& cuda, CUstream stream, CUdeviceptr block) {
    const auto wait = [](void* ended) { static_cast<std::shared_future<void>*>(ended)->wait(); };
    EXPECT_EQ(cuda.cuLaunchHostFunc(stream, wait, &ended_), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemsetD8Async(block, 5, kBlock, stream), CUDA_SUCCESS);
  }
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
  std::shared_future<void> ended_ = end_.get_future().share();
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
    for (const CUstream stream : streams_) EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  }

  // On the device that is current.
  CUstream NewStream() {
    const CUstream stream = PoolTest::NewStream();
    EXPECT_TRUE(runtime().PromiseStream(stream).ok());
    streams_.push_back(stream);
    return stream;
  }
  CUdeviceptr Allocate(PoolHandle pool, CUstream stream) {
    const Result<CUdeviceptr> block = runtime().AllocateFrom(pool, kBlock, stream);
    EXPECT_TRUE(block.ok()) << block.status().message();
    return block.ok() ? *block : 0;
  }
  // What was written last, by the block's owner.
  void ExpectBytes(CUstream stream, CUdeviceptr block) {
    std::vector<uint8_t> bytes(kBlock);
    EXPECT_EQ(cuda().cuMemcpyDtoHAsync(bytes.data(), block, kBlock, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(bytes, std::vector<uint8_t>(kBlock, 9)) << "the freed block's work wrote the live one";
  }
  // A pool of device 1 that device 0 may use, with room for one block.
  PoolHandle CreateForBoth() {
    PoolConfiguration configuration = Configured("both", /*device=*/1);
    configuration.peers = {0};
    configuration.limit_bytes = 4 * kMiB;
    return Create(configuration);
  }
  // What was freed while device 0 worked on it serves device 1 only behind that work.
  void ExpectServedBehind(PoolHandle pool, HeldWrite& work, CUstream busy) {
    const ContextGuard here(driver(), far_);
    const CUstream stream = NewStream();
    const CUdeviceptr next = Allocate(pool, stream);
    EXPECT_EQ(cuda().cuMemsetD8Async(next, 9, kBlock, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "it ran beside the work of the other device";
    work.End();
    EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    {
      const ContextGuard there(driver(), near_);
      EXPECT_EQ(cuda().cuStreamSynchronize(busy), CUDA_SUCCESS);
    }
    ExpectBytes(stream, next);
    Free(next);
  }

  const PrimaryContext near_ = PrimaryContext::Retain(driver(), 0).value();
  // A machine of one device skips every case.
  const PrimaryContext far_ = PrimaryContext::Retain(driver(), std::min(1, DeviceCountOfTests() - 1)).value();
  std::vector<CUstream> streams_;
};

TEST_F(StreamPlacesOfPools, PinnedMemoryServesNobodyWhileAnotherDevicesDefaultStreamUsesIt) {
  PoolConfiguration configuration = Configured("pinned");
  configuration.backing.kind = BackingKind::kPinned;
  const PoolHandle pool = Create(configuration);
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
  EXPECT_EQ(cuda().cuMemsetD8Async(next, 9, kBlock, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  work->End();
  ExpectBytes(stream, next);
  Free(next);
}

// The block would serve that stream too, which can wait for nothing outside of its capture.
TEST_F(StreamPlacesOfPools, AProgramThatLeavesAPeerCurrentIsRefusedWhileThePoolsOwnDefaultStreamCaptures) {
  const PoolHandle pool = CreateForBoth();
  CUgraph graph = nullptr;
  {
    const ContextGuard there(driver(), far_);
    ASSERT_EQ(cuda().cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  }
  ExpectFailure(runtime().AllocateFrom(pool, kBlock, CU_STREAM_PER_THREAD).status(), StatusCode::kFailedPrecondition,
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
  PoolConfiguration configuration = Configured("later", /*device=*/1);
  configuration.limit_bytes = 4 * kMiB;
  const PoolHandle pool = Create(configuration);
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
  PoolConfiguration configuration = Configured("busy", /*device=*/1);
  configuration.peers = {0};
  configuration.deadline_ms = 100;
  const PoolHandle pool = Create(configuration);
  const CUdeviceptr block = Allocate(pool, nullptr);
  HeldWrite work(cuda(), nullptr, block);
  EXPECT_EQ(Get(pool).blocks().WaitForDevice().code(), StatusCode::kDeadlineExceeded)
      << "a live block's stream counts, too";
  work.End();
  EXPECT_TRUE(Get(pool).blocks().WaitForDevice().ok());
  Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
