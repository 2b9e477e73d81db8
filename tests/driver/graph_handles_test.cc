#include "src/driver/graph_handles.h"

#include <cstring>
#include <future>
#include <utility>

#include "src/driver/launch.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal {
namespace {

using testing::InjectedFault;

class GraphHandles : public testing::ConformanceTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("faults are injected"); }

  static void End(void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); }
  CUstream Begin() {
    const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    return stream;
  }
  CUgraph EndCapture(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    return graph;
  }
  // Captures, replays twice, and forgets a launch that adds one to the memory.
  void ExpectReplays(const Driver& other) {
    constexpr uint64_t kBytes = 4096;
    const CUdeviceptr memory = Allocate(kBytes);
    Fill(memory, 1, kBytes);
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    const CUstream stream = Begin();
    const auto add = [](const std::vector<const void*>& reads, const std::vector<void*>& writes) {
      for (uint64_t index = 0; index < kBytes; ++index) {
        static_cast<uint8_t*>(writes[0])[index] =
            static_cast<uint8_t>(static_cast<const uint8_t*>(reads[0])[index] + 1);
      }
    };
    const Status status = Launch(other, stream, {{memory, kBytes}}, {{memory, kBytes}}, add);
    EXPECT_TRUE(status.ok()) << status.message();
    const CUgraph graph = EndCapture(stream);
    CUgraphExec executable = nullptr;
    ASSERT_EQ(cuda().cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
    for (int round = 0; round < 2; ++round) ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(memory, kBytes), std::vector<uint8_t>(kBytes, 3));
    EXPECT_EQ(cuda().cuGraphExecDestroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
};

TEST_F(GraphHandles, AUserObjectReleasesItsReference) {
  std::promise<void> ended;
  {
    UserObject first = UserObject::Create(driver(), &End, &ended).value();
    const UserObject second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT: what is left of it is what is tested
    EXPECT_TRUE(second.valid());
  }
  ended.get_future().wait();
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMadeEndsNothing) {
  const InjectedFault fault({.call = "cuUserObjectCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(UserObject::Create(driver(), &End, nullptr).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMovedIsKept) {
  std::promise<void> ended;
  UserObject object = UserObject::Create(driver(), &End, &ended).value();
  EXPECT_FALSE(object.MoveTo(nullptr).ok());
  EXPECT_TRUE(object.valid());
  EXPECT_TRUE(object.Release().ok());
  EXPECT_EQ(object.MoveTo(nullptr).code(), StatusCode::kInvalidArgument) << "it is empty";
  ended.get_future().wait();
}

TEST_F(GraphHandles, TheGraphInCaptureIsFoundWhereThereIsOne) {
  EXPECT_EQ(GraphInCapture(driver(), MakeStream()).value(), nullptr);
  const CUstream stream = Begin();
  EXPECT_NE(GraphInCapture(driver(), stream).value(), nullptr);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_FALSE(GraphInCapture(driver(), stream).ok()) << "the capture is broken";
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphHandles, ARelaxedScopeAllowsWhatTheCaptureForbids) {
  const CUevent event = MakeEvent();
  const CUstream stream = Begin();
  {
    const RelaxedCapture relaxed(driver());
    const RelaxedCapture nested(driver());
    EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << "the mode is as before";
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphHandles, ALaunchIsReplayed) { ExpectReplays(driver()); }

TEST_F(GraphHandles, ALaunchIsReplayedAsOnARealDevice) {
  AllowLeak("pinned host memory");  // the next launch would free it
  Driver staged;
  staged.cuda = driver().cuda;
  ExpectReplays(staged);
}

TEST_F(GraphHandles, ALaunchThatCannotBeCapturedLeavesNothing) {
  const CUdeviceptr memory = Allocate(4096);
  const auto nothing = [](const std::vector<const void*>&, const std::vector<void*>&) {};
  const CUstream stream = Begin();
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject", "commpoolEmulatorLaunch"}) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(Launch(driver(), stream, {{memory, 16}}, {}, nothing).ok()) << call;
  }
  EXPECT_EQ(cuda().cuGraphDestroy(EndCapture(stream)), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal
