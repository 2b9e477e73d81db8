// A program may destroy a stream at any time. Later calls that name it are mistakes: on hardware they end the process,
// and no call can ask whether a stream lives.
#include <vector>

#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class DeadStreams : public MachineTest {
 protected:
  static CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  CUstream Dead() {
    const CUstream stream = NewStream();
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
    return stream;
  }
  unsigned long long IdOf(CUstream stream) {
    unsigned long long id = 0;
    EXPECT_EQ(cuda().cuStreamGetId(stream, &id), CUDA_SUCCESS);
    return id;
  }
};

TEST_F(DeadStreams, AreReportedByAnyCallThatNamesThem) {
  const CUstream dead = Dead();
  CUevent event = nullptr;
  ASSERT_EQ(cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  unsigned long long id = 0;
  CUcontext context = nullptr;
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const std::vector<CUresult> answers = {cuda().cuStreamQuery(dead),
                                         cuda().cuStreamSynchronize(dead),
                                         cuda().cuEventRecord(event, dead),
                                         cuda().cuStreamWaitEvent(dead, event, 0),
                                         cuda().cuStreamGetId(dead, &id),
                                         cuda().cuStreamGetCtx(dead, &context),
                                         cuda().cuStreamIsCapturing(dead, &capturing),
                                         cuda().cuStreamDestroy(dead)};
  for (const CUresult answer : answers) EXPECT_EQ(answer, CUDA_ERROR_INVALID_HANDLE);
  const std::vector<std::string> reports = TakeReports();
  EXPECT_EQ(reports.size(), answers.size());
  for (const std::string& report : reports) {
    EXPECT_NE(report.find("dead stream: a call names a stream that was destroyed"), std::string::npos) << report;
  }
  EXPECT_EQ(cuda().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(DeadStreams, GiveTheirHandleToTheNextAndNeverTheirNumber) {
  const CUstream first = NewStream();
  const unsigned long long id = IdOf(first);
  ASSERT_EQ(cuda().cuStreamDestroy(first), CUDA_SUCCESS);
  const CUstream second = NewStream();
  EXPECT_EQ(second, first);
  EXPECT_NE(IdOf(second), id);
  EXPECT_EQ(cuda().cuStreamDestroy(second), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(DeadStreams, RunTheirWork) {
  const CUdeviceptr memory = Allocate();
  const CUstream stream = NewStream();
  ASSERT_EQ(cuda().cuMemsetD8Async(memory, 7, kUnit, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamDestroy(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  unsigned char byte = 0;
  ASSERT_EQ(cuda().cuMemcpyDtoH(&byte, memory + kUnit - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(byte, 7);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(DeadStreams, AreNotReportedWhereTheyNeverExisted) {
  unsigned long long id = 0;
  EXPECT_EQ(cuda().cuStreamGetId(reinterpret_cast<CUstream>(0xdead0), &id), CUDA_ERROR_INVALID_HANDLE);
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(cuda().cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

}  // namespace
}  // namespace commpool::internal::testing
