#include "src/library/driver/graph_handles.h"

#include <cstring>
#include <future>
#include <utility>

#include "tests/driver/capturing.h"
#include "tests/driver/conformance/conformance_fixture.h"
#include "tools/common/launch.h"

namespace commpool::internal {
namespace {

using testing::InjectedFault;

class GraphHandles : public testing::Capturing<testing::ConformanceTest> {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("faults are injected"); }

  static void Fulfil(void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); }
  // Captures, replays twice, and forgets a launch that adds one to the memory.
  void ExpectReplays(const Driver& other) {
    constexpr uint64_t kBytes = 4096;
    const CUdeviceptr memory = Allocate(kBytes);
    Fill(memory, 1, kBytes);
    ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
    const CUstream stream = BeginOnNewStream();
    const auto add = [](const std::vector<const void*>& reads, const std::vector<void*>& writes) {
      for (uint64_t index = 0; index < kBytes; ++index) {
        static_cast<uint8_t*>(writes[0])[index] =
            static_cast<uint8_t>(static_cast<const uint8_t*>(reads[0])[index] + 1);
      }
    };
    ExpectOk(Launch(other, stream, {{memory, kBytes}}, {{memory, kBytes}}, add));
    const CUgraph graph = End(stream);
    const CUgraphExec executable = Instantiate(graph);
    for (int round = 0; round < 2; ++round) ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(memory, kBytes), std::vector<uint8_t>(kBytes, 3));
    EXPECT_EQ(Destroy(executable), CUDA_SUCCESS);
    EXPECT_EQ(Destroy(graph), CUDA_SUCCESS);
  }
};

TEST_F(GraphHandles, AUserObjectReleasesItsReference) {
  std::promise<void> ended;
  {
    UserObject first = UserObject::Create(driver(), &Fulfil, &ended).value();
    const UserObject second = std::move(first);
    EXPECT_FALSE(first.valid());  // NOLINT: the test is about the moved-from handle
    EXPECT_TRUE(second.valid());
  }
  ended.get_future().wait();
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMadeEndsNothing) {
  const InjectedFault fault({.call = "cuUserObjectCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
  EXPECT_EQ(UserObject::Create(driver(), &Fulfil, nullptr).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(GraphHandles, AUserObjectThatCannotBeMovedIsKept) {
  std::promise<void> ended;
  UserObject object = UserObject::Create(driver(), &Fulfil, &ended).value();
  EXPECT_FALSE(object.MoveTo(nullptr).ok());
  EXPECT_TRUE(object.valid());
  EXPECT_TRUE(object.Release().ok());
  EXPECT_EQ(object.MoveTo(nullptr).code(), StatusCode::kInvalidArgument) << "it is empty";
  ended.get_future().wait();
}

TEST_F(GraphHandles, TheGraphInCaptureIsFoundWhereThereIsOne) {
  EXPECT_EQ(GraphInCapture(driver(), MakeStream()).value(), nullptr);
  const CUstream stream = BeginOnNewStream();
  EXPECT_NE(GraphInCapture(driver(), stream).value(), nullptr);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_FALSE(GraphInCapture(driver(), stream).ok()) << "the capture is broken";
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphHandles, ARelaxedScopeAllowsWhatTheCaptureForbids) {
  const CUevent event = MakeEvent();
  const CUstream stream = BeginOnNewStream();
  {
    const RelaxedCapture relaxed(driver());
    const RelaxedCapture nested(driver());
    EXPECT_EQ(cuda().cuEventQuery(event), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuda().cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << "the mode is as before";
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
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
  const CUstream stream = BeginOnNewStream();
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject", "commpoolEmulatorLaunch"}) {
    const InjectedFault fault({.call = call, .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(Launch(driver(), stream, {{memory, 16}}, {}, nothing).ok()) << call;
  }
  EXPECT_EQ(Destroy(End(stream)), CUDA_SUCCESS);
}

}  // namespace
}  // namespace commpool::internal
