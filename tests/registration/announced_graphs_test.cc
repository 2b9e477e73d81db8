// Sleep of a symmetric pool whose program says that all captures over it were announced: each was looked at as it
// ended, and live graphs may hold symmetric kernels alone. NCCL has its default settings here.
#include <array>
#include <string>
#include <vector>

#include "tests/pool/announced_capture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kCount = 1000;
const SleepRequest kAnnounced = {.graphs = LiveGraphs::kAnnounced};

class AnnouncedGraphs : public SymmetricTest {
 protected:
  void SetUp() override {
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    ExpectOk(Create());
    ExpectOk(Reserve(2 * kMiB));
    blocks_ = Allocate(kCount * 4);
  }
  void TearDown() override {
    if (!IsSkipped()) Free(blocks_);
    SymmetricTest::TearDown();
  }

  // The announcement ends before the capture does, or too late.
  enum class Announced { kWell, kTooLong };
  // `outer`: where not null, gets another announcement of each rank's capture, which the caller ends.
  void Capture(ncclDataType_t type, Announced announced = Announced::kWell,
               std::vector<CaptureHandle>* outer = nullptr) {
    ExpectOk(Run([&](Rank& rank) {
      AnnouncedCapture& capture = CaptureOf(rank);
      Status status = capture.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      if (!status.ok()) return status;
      if (outer != nullptr) {
        (*outer)[static_cast<size_t>(rank.number)] = runtime().BeginCapture(HandleOf(rank), rank.stream).value();
      }
      auto* const block = reinterpret_cast<void*>(BlockOf(rank));
      EXPECT_EQ(driver().nccl.ncclAllReduce(block, block, kCount, type, ncclSum, rank.communicator, rank.stream),
                ncclSuccess);
      if (announced == Announced::kWell) return capture.End();
      capture.EndOnTheStream();
      return capture.EndForThePool();
    }));
  }
  // Of ones: their sum on every rank.
  void ReplayOnFloats() {
    ExpectOk(Run([&](Rank& rank) {
      const CudaDriver& cuda = driver().cuda;
      std::vector<float> values(kCount, 1);
      CUgraphExec executable = nullptr;
      EXPECT_EQ(cuda.cuGraphInstantiateWithFlags(&executable, CaptureOf(rank).graph(), 0), CUDA_SUCCESS);
      EXPECT_EQ(cuda.cuMemcpyHtoDAsync(BlockOf(rank), values.data(), kCount * 4, rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(cuda.cuGraphLaunch(executable, rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(cuda.cuMemcpyDtoHAsync(values.data(), BlockOf(rank), kCount * 4, rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(values, std::vector<float>(kCount, static_cast<float>(rank.ranks)));
      EXPECT_EQ(cuda.cuGraphExecDestroy(executable), CUDA_SUCCESS);
      return Status();
    }));
  }
  void DestroyGraphs() {
    for (int rank = 0; rank <= last(); ++rank) CaptureOf(group()[rank]).DestroyGraph();
  }
  Statuses Sleep(const SleepRequest& request) {
    return Run([&](Rank& rank) { return PoolOf(rank).Sleep(request); });
  }
  Statuses Wake() {
    return Run([&](Rank& rank) { return PoolOf(rank).Wake(); });
  }

  std::array<AnnouncedCapture, 8> late_;

 private:
  AnnouncedCapture& CaptureOf(const Rank& rank) { return captures_[static_cast<size_t>(rank.number)]; }
  CUdeviceptr BlockOf(const Rank& rank) const { return blocks_[static_cast<size_t>(rank.number)]; }

  std::array<AnnouncedCapture, 8> captures_;
  std::vector<CUdeviceptr> blocks_;
};

TEST_F(AnnouncedGraphs, OfSymmetricKernelsHold) {
  Capture(ncclFloat);
  ExpectFailure(Sleep({}), StatusCode::kFailedPrecondition, "NCCL_LOCAL_REGISTER is not 0");
  for (int sleeps = 0; sleeps < 5; ++sleeps) {
    ExpectOk(Sleep(kAnnounced));
    ExpectOk(Wake());
    ReplayOnFloats();
  }
  DestroyGraphs();
}

TEST_F(AnnouncedGraphs, OfOtherKernelsAreRefusedOnAllRanksWhileTheyLive) {
  Capture(ncclInt32);
  const Statuses refused = Sleep(kAnnounced);
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "a live graph captured with the pool: it holds ");
  ExpectFailure(refused, StatusCode::kFailedPrecondition, "ncclDevKernel_AllReduce");  // a GPU's name is a mangled one
  EXPECT_EQ(RegisteredSegments(0), 1u) << "nothing has changed";
  DestroyGraphs();
  ExpectOk(Sleep(kAnnounced));
  ExpectOk(Wake());
}

// As with PyTorch, whose allocator hears of the end of a capture after it, and a scope of the program inside of that.
TEST_F(AnnouncedGraphs, AreSeenByOneAnnouncementForAllOfTheirCapture) {
  const auto capture_twice_announced = [&](ncclDataType_t type) {
    std::vector<CaptureHandle> outer(static_cast<size_t>(group().size()));
    Capture(type, Announced::kWell, &outer);
    ExpectOk(Run([&](Rank& rank) { return runtime().EndCapture(outer[static_cast<size_t>(rank.number)]); }));
  };
  capture_twice_announced(ncclFloat);
  ExpectOk(Sleep(kAnnounced));
  ExpectOk(Wake());
  ReplayOnFloats();
  // The next capture, while the first one's graph lives, was not seen.
  ExpectOk(Run([&](Rank& rank) {
    AnnouncedCapture& late = late_[static_cast<size_t>(rank.number)];
    const Status begun = late.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!begun.ok()) return begun;
    late.EndOnTheStream();
    return late.EndForThePool();
  }));
  ExpectFailure(Sleep(kAnnounced), StatusCode::kFailedPrecondition,
                "its capture had ended before its announcement did");
  for (int rank = 0; rank <= last(); ++rank) late_[static_cast<size_t>(rank)].DestroyGraph();
  ExpectOk(Sleep(kAnnounced));
  ExpectOk(Wake());
  DestroyGraphs();
  capture_twice_announced(ncclInt32);
  ExpectFailure(Sleep(kAnnounced), StatusCode::kFailedPrecondition, "ncclDevKernel_AllReduce");
  DestroyGraphs();
}

TEST_F(AnnouncedGraphs, ThatWereNotSeenAreRefused) {
  Capture(ncclFloat, Announced::kTooLong);
  ExpectFailure(Sleep(kAnnounced), StatusCode::kFailedPrecondition,
                "its capture had ended before its announcement did");
  DestroyGraphs();
}

}  // namespace
}  // namespace commpool::internal::testing
