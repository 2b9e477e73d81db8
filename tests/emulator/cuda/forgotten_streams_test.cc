// Streams that are destroyed while a pool still knows them.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class ForgottenStreams : public MachineTest {
 protected:
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  void Destroy(CUstream stream) { EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS); }
  static void AnnounceBlock(CUdeviceptr address, CUstream stream, const char* pool = "grads") {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(address, 4096, stream, pool);
  }
  static void AnnounceRecord(CUdeviceptr address, CUstream stream) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockRecorded)(address, stream);
  }
  static void AnnounceRelease(CUstream stream) { COMMPOOL_EXTENSION(commpoolEmulatorStreamReleased)(stream); }
};

TEST_F(ForgottenStreams, AreReportedWithThePoolThatAllocatedForThem) {
  const CUstream stream = NewStream();
  const CUdeviceptr segment = Allocate();
  AnnounceBlock(segment, stream);
  COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(segment);  // its order outlives the block
  Destroy(stream);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  for (const char* part : {"forgotten stream: stream ", " of device 0 is destroyed without commpool_release_stream",
                           "pool grads has used it", "destroyed at "}) {
    EXPECT_NE(reports[0].find(part), std::string::npos) << part << " in " << reports[0];
  }
}

TEST_F(ForgottenStreams, AreReportedWhereTheyWereRecordedForABlock) {
  const CUstream owner = MakeStream();
  const CUstream other = NewStream();
  const CUdeviceptr segment = Allocate();
  AnnounceBlock(segment, owner, "moments");
  AnnounceRecord(segment, other);
  Destroy(other);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("pool moments has used it"), std::string::npos) << reports[0];
}

TEST_F(ForgottenStreams, AreNoneThatWereReleasedAndNotUsedAgain) {
  const CUdeviceptr segment = Allocate();
  const CUstream stream = NewStream();
  AnnounceBlock(segment, stream);
  AnnounceRelease(stream);
  Destroy(stream);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());

  const CUstream again = NewStream();  // perhaps at the same handle
  Destroy(again);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());

  const CUstream reused = NewStream();
  AnnounceBlock(segment, reused);
  AnnounceRelease(reused);
  AnnounceRecord(segment, reused);
  Destroy(reused);
  EXPECT_EQ(TakeReports().size(), 1u) << "used after its release";
}

TEST_F(ForgottenStreams, AreNoneWhereNoPoolUsedThem) {
  const CUstream stream = NewStream();
  AnnounceRecord(Allocate(), stream);  // memory that nobody announced
  AnnounceRelease(reinterpret_cast<CUstream>(0xdead0));
  Destroy(stream);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(ForgottenStreams, AreNoneWhereThePoolsMemoryIsGone) {
  CUdeviceptr segment = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&segment, kUnit), CUDA_SUCCESS);
  const CUstream stream = NewStream();
  AnnounceBlock(segment + 4096, stream);
  ASSERT_EQ(cuda().cuMemFree(segment), CUDA_SUCCESS);
  Destroy(stream);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(ForgottenStreams, AreNeverDefaultStreams) {
  const CUdeviceptr segment = Allocate();
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    AnnounceBlock(segment, stream);
    AnnounceRecord(segment, stream);
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
