// A pool allocates blocks for a capturing stream.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class UnannouncedCaptures : public MachineTest {
 protected:
  UnannouncedCaptures() : segment_(Allocate()), stream_(MakeStream()) {}

  void Begin() { ASSERT_EQ(cuda().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS); }
  void End() {
    CUgraph graph = nullptr;
    ASSERT_EQ(cuda().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  static void Announce(CUstream stream, int announced) {
    COMMPOOL_EXTENSION(commpoolEmulatorCaptureAnnounced)(stream, announced);
  }
  void AnnounceBlock(CUstream stream) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment_, 4096, stream, "grads");
  }

  CUdeviceptr segment_;
  CUstream stream_;
};

TEST_F(UnannouncedCaptures, AreReportedWithThePoolTheBlockAndTheStream) {
  Begin();
  AnnounceBlock(stream_);
  End();
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  for (const char* part : {"unannounced capture: pool grads serves stream ", " of device 0, which captures",
                           "a block of 4096 bytes at 0x", "allocated at "}) {
    EXPECT_NE(reports[0].find(part), std::string::npos) << part << " in " << reports[0];
  }
}

TEST_F(UnannouncedCaptures, AreReportedOnStreamsThatJoined) {
  const CUstream joined = MakeStream();
  const CUevent event = MakeEvent();
  Begin();
  ASSERT_EQ(cuda().cuEventRecord(event, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(joined, event, 0), CUDA_SUCCESS);
  AnnounceBlock(joined);
  EXPECT_EQ(TakeReports().size(), 1u);
  Announce(stream_, 1);
  AnnounceBlock(joined);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "its origin is announced";
  Announce(stream_, 0);
  ASSERT_EQ(cuda().cuEventRecord(event, joined), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamWaitEvent(stream_, event, 0), CUDA_SUCCESS);
  End();
}

TEST_F(UnannouncedCaptures, AreNoneWhereTheyAreAnnounced) {
  Begin();
  Announce(stream_, 1);
  AnnounceBlock(stream_);
  Announce(stream_, 0);
  End();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(UnannouncedCaptures, AreNoneOnOtherStreams) {
  Begin();
  AnnounceBlock(MakeStream());
  AnnounceBlock(CU_STREAM_PER_THREAD);
  End();
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
