// Blocks that pools announce to the emulated driver.
#include "src/emulator/runtime_extension.h"
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class AnnouncedBlocks : public MachineTest {
 protected:
  AnnouncedBlocks() : segment_(Allocate()), stream_(MakeStream()) {}

  void Announce(uint64_t offset, uint64_t bytes, const char* pool = "grads") {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment_ + offset, bytes, stream_, pool);
  }
  void AnnounceFree(uint64_t offset) { COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(segment_ + offset); }
  CUresult Write(CUstream stream, uint64_t offset, uint64_t bytes) {
    return Launch(stream, {{segment_ + offset, bytes}});
  }

  CUdeviceptr segment_;
  CUstream stream_;
};

TEST_F(AnnouncedBlocks, AreUsedInSilenceWhileTheyLive) {
  Announce(0, 4096);
  EXPECT_EQ(Write(stream_, 0, 4096), CUDA_SUCCESS);
  AnnounceFree(0);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "what was submitted before the free is in order";
}

TEST_F(AnnouncedBlocks, AreReportedWhenUsedAfterTheirFree) {
  Announce(0, 4096);
  AnnounceFree(0);
  EXPECT_EQ(Write(stream_, 100, 1), CUDA_SUCCESS);
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  for (const char* part : {"use of a freed block: ", "test kernel of stream ", "block of 4096 bytes allocated as #",
                           "by pool grads, freed", "issued at "}) {
    EXPECT_NE(reports[0].find(part), std::string::npos) << part << " in " << reports[0];
  }
  Announce(0, 4096);
  EXPECT_EQ(Write(stream_, 100, 1), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>()) << "allocated again";
}

TEST_F(AnnouncedBlocks, AreReportedWhenAUseRunsPastTheirEnd) {
  Announce(0, 4096);
  Announce(4096, 4096, "moments");
  ASSERT_EQ(cuda().cuMemsetD8Async(segment_, 0, 4097, stream_), CUDA_SUCCESS);
  ExpectOneReport({"access beyond a block: cuMemsetD8Async", "by pool moments"});
}

TEST_F(AnnouncedBlocks, AreNamedWhereTheirReuseIsARace) {
  Announce(0, 4096);
  EXPECT_EQ(Write(stream_, 0, 4096), CUDA_SUCCESS);
  AnnounceFree(0);
  Announce(0, 512, "moments");
  EXPECT_EQ(Write(MakeStream(), 0, 512), CUDA_SUCCESS);
  cuda().cuCtxSynchronize();
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u);
  for (const char* part : {"race: ", "by pool grads, freed)", "by pool moments)"}) {
    EXPECT_NE(reports[0].find(part), std::string::npos) << part << " in " << reports[0];
  }
}

// PyTorch frees a block and hands it out again before its stream has work: another stream, which waited since, uses it.
TEST_F(AnnouncedBlocks, AreJudgedByTheirUsesOnceTheyServeAgain) {
  const auto begins = [&](uint64_t offset, uint64_t bytes) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockBegins)(segment_ + offset, bytes, stream_, 0, "PyTorch");
  };
  const auto ends = [&](uint64_t offset) {
    COMMPOOL_EXTENSION(commpoolEmulatorBlockEnds)(segment_ + offset, stream_, 0);
  };
  begins(0, 512);
  begins(4096, 512);
  begins(8192, 512);
  EXPECT_EQ(Write(stream_, 0, 512), CUDA_SUCCESS);
  ends(0);
  ends(8192);
  begins(0, 512);
  CUstream const other = MakeStream();
  CUevent const event = MakeEvent();
  EXPECT_EQ(cuda().cuEventRecord(event, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(Write(other, 0, 512), CUDA_SUCCESS);
  EXPECT_EQ(Write(other, 8192, 512), CUDA_SUCCESS);
  Gate gate(stream_);
  EXPECT_EQ(Write(stream_, 4096, 512), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(other), CUDA_SUCCESS);
  gate.Open();
  cuda().cuCtxSynchronize();
  ExpectOneReport({"the possible reuse of a freed block"});
}

TEST_F(AnnouncedBlocks, AreForgottenWithTheirSegment) {
  CUdeviceptr segment = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&segment, kUnit), CUDA_SUCCESS);
  COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(segment, 512, nullptr, nullptr);
  COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(segment);
  EXPECT_EQ(Launch(stream_, {{segment, 512}}), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports().size(), 1u);
  ASSERT_EQ(cuda().cuMemFree(segment), CUDA_SUCCESS);
  // Where the same addresses come again they are new.
  CUdeviceptr again = 0;
  ASSERT_EQ(cuda().cuMemAlloc(&again, kUnit), CUDA_SUCCESS);
  EXPECT_EQ(Launch(stream_, {{again, 512}}), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuMemFree(again), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
