// Streams, events, captures and graphs of the emulated runtime.
#include <atomic>

#include "tests/emulator/cudart/runtime_fixture.h"

namespace commpool::internal::testing {
namespace {

class RuntimeStreams : public RuntimeTest {};
class RuntimeGraphs : public RuntimeTest {};

TEST_F(RuntimeStreams, HavePriorities) {
  int least = -1;
  int greatest = 0;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaDeviceGetStreamPriorityRange)(&least, &greatest), cudaSuccess);
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  const cudaStream_t stream = Get(COMMPOOL_RUNTIME(cudaStreamCreateWithPriority), cudaStreamNonBlocking, greatest);
  int priority = 0;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamGetPriority)(stream, &priority), cudaSuccess);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamDestroy)(stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamDestroy)(stream), cudaErrorInvalidResourceHandle);
  EXPECT_NE(TakeReports().find("dead stream"), std::string::npos);
}

TEST_F(RuntimeStreams, WaitForEvents) {
  cudaStream_t const first = MakeStream();
  cudaStream_t const second = MakeStream();
  const cudaEvent_t event = Get(COMMPOOL_RUNTIME(cudaEventCreateWithFlags), cudaEventDisableTiming);
  void* const memory = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(memory, 1, kBytes, first), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaEventRecord)(event, first), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamWaitEvent)(second, event, 0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(memory, 2, kBytes, second), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(second), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamQuery)(second), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaEventQuery)(event), cudaSuccess);
  EXPECT_EQ(Download(memory), std::vector<char>(kBytes, 2));
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaEventDestroy)(event), cudaSuccess);
}

TEST_F(RuntimeStreams, AreHeldAgainstEachOther) {
  void* const memory = Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(memory, 1, kBytes, MakeStream()), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(memory, 2, kBytes, MakeStream()), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  EXPECT_NE(TakeReports().find("race"), std::string::npos);
}

TEST_F(RuntimeStreams, CallTheProgramBack) {
  cudaStream_t const stream = MakeStream();
  static std::atomic<int> calls = 0;
  const auto callback = [](cudaStream_t, cudaError_t error, void* context) {
    if (error == cudaSuccess && context == &calls) ++calls;
  };
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamAddCallback)(stream, callback, &calls, 0), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaLaunchHostFunc)(
                stream, [](void* context) { ++*static_cast<std::atomic<int>*>(context); }, &calls),
            cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(calls, 2);
}

TEST_F(RuntimeGraphs, RepeatWhatWasCaptured) {
  cudaStream_t const stream = MakeStream();
  void* const source = Allocate();
  void* const target = Allocate();
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaMemset)(target, 0, kBytes), cudaSuccess);
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaDeviceSynchronize)(), cudaSuccess);
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemsetAsync)(source, 6, kBytes, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMemcpyAsync)(target, source, kBytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t making = nullptr;
  size_t count = 0;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamGetCaptureInfo)(stream, &status, &id, &making, nullptr, nullptr, &count),
            cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(count, 1u);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamEndCapture)(stream, &graph), cudaSuccess);
  EXPECT_EQ(graph, making);
  EXPECT_EQ(Download(target), std::vector<char>(kBytes, 0)) << "nothing has run";
  const cudaGraphExec_t executable = Get(COMMPOOL_RUNTIME(cudaGraphInstantiate), graph, 0);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphDestroy)(graph), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphLaunch)(executable, stream), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamSynchronize)(stream), cudaSuccess);
  EXPECT_EQ(Download(target), std::vector<char>(kBytes, 6));
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphExecDestroy)(executable), cudaSuccess);
}

TEST_F(RuntimeGraphs, RefuseMemoryInACaptureUnlessTheThreadIsRelaxed) {
  cudaStream_t const stream = MakeStream();
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaThreadExchangeStreamCaptureMode)(&mode), cudaSuccess);
  Allocate();
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaThreadExchangeStreamCaptureMode)(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaMalloc)(&memory, kBytes), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaStreamEndCapture)(stream, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(RuntimeGraphs, TellWhenTheyAreGone) {
  static std::atomic<bool> gone = false;
  cudaUserObject_t object = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaUserObjectCreate)(
                &object, nullptr,
                [](void*) {
                  gone = true;
                  gone.notify_all();
                },
                1, cudaUserObjectNoDestructorSync),
            cudaSuccess);
  cudaStream_t const stream = MakeStream();
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(COMMPOOL_RUNTIME(cudaStreamEndCapture)(stream, &graph), cudaSuccess);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphRetainUserObject)(graph, object, 1, cudaGraphUserObjectMove), cudaSuccess);
  EXPECT_FALSE(gone);
  EXPECT_EQ(COMMPOOL_RUNTIME(cudaGraphDestroy)(graph), cudaSuccess);
  gone.wait(false);
}

}  // namespace
}  // namespace commpool::internal::testing
