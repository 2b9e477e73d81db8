// Graphs and their replay, and user objects.
//
// Sources: the driver API's section "Graph Management" (cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy,
// cuUserObjectCreate, cuGraphRetainUserObject) and the programming guide's "CUDA User Objects", and what an H200 with
// driver 580 answered.
#include <chrono>
#include <future>
#include <vector>

#include "src/library/driver/graph_handles.h"
#include "tests/driver/capturing.h"
#include "tests/driver/conformance/conformance_fixture.h"

namespace commpool::internal::testing {
namespace {

class Graphs : public Capturing<ConformanceTest> {
 protected:
  static constexpr uint64_t kBytes = 4096;

  // A graph of one memset.
  CUgraph Memset(CUdeviceptr memory, uint8_t value) {
    const CUstream stream = BeginOnNewStream();
    Fill(memory, value, kBytes, stream);
    return End(stream);
  }
  CUgraph Empty() {
    const CUstream stream = BeginOnNewStream();
    return End(stream);
  }
  void RunGraph(CUgraphExec executable, CUstream stream) {
    ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  std::vector<uint8_t> All(uint8_t value) { return std::vector<uint8_t>(kBytes, value); }

  const CUdeviceptr memory_ = Allocate(kBytes);
  const CUstream stream_ = MakeStream(CU_STREAM_NON_BLOCKING);
};

TEST_F(Graphs, RunAsOftenAsTheyAreLaunched) {
  const CUgraphExec executable = Instantiate(Memset(memory_, 7));
  for (int round = 0; round < 3; ++round) {
    Fill(memory_, 1, kBytes, stream_);
    RunGraph(executable, stream_);
    EXPECT_EQ(Read(memory_, kBytes), All(7));
  }
}

TEST_F(Graphs, KeepTheOrderOfTheCapture) {
  const CUdeviceptr first = Allocate(kBytes);
  const CUdeviceptr second = Allocate(kBytes);
  const CUstream stream = BeginOnNewStream();
  Fill(first, 3, kBytes, stream);
  EXPECT_EQ(cuda().cuMemcpyDtoDAsync(second, first, kBytes, stream), CUDA_SUCCESS);
  Fill(first, 4, kBytes, stream);
  const CUgraph graph = End(stream);
  EXPECT_EQ(NodesOf(graph), 3u);
  RunGraph(Instantiate(graph), stream);
  EXPECT_EQ(Read(first, kBytes), All(4));
  EXPECT_EQ(Read(second, kBytes), All(3));
}

TEST_F(Graphs, KeepTheOrderOfForksAndJoins) {
  const CUdeviceptr first = Allocate(kBytes);
  const CUdeviceptr second = Allocate(kBytes);
  const CUdeviceptr third = Allocate(kBytes);
  const CUstream forked = MakeStream(CU_STREAM_NON_BLOCKING);
  const CUstream stream = BeginOnNewStream();
  Fill(first, 5, kBytes, stream);
  Order(stream, forked);
  EXPECT_EQ(cuda().cuMemcpyDtoDAsync(second, first, kBytes, forked), CUDA_SUCCESS);
  Order(forked, stream);
  EXPECT_EQ(cuda().cuMemcpyDtoDAsync(third, second, kBytes, stream), CUDA_SUCCESS);
  const CUgraphExec executable = Instantiate(End(stream));
  for (int round = 0; round < 5; ++round) {
    for (const CUdeviceptr memory : {first, second, third}) Fill(memory, 0, kBytes, stream);
    RunGraph(executable, stream);
    EXPECT_EQ(Read(third, kBytes), All(5));
  }
}

TEST_F(Graphs, StandInTheirStreamAsOneOperation) {
  const CUdeviceptr copy = Allocate(kBytes);
  const CUgraphExec executable = Instantiate(Memset(memory_, 8));
  Fill(memory_, 1, kBytes, stream_);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  Hold(stream_);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemcpyDtoDAsync(copy, memory_, kBytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  LetGo();
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(copy, kBytes), All(8));
}

TEST_F(Graphs, OfOneExecutableRunOneAfterAnotherInAnyStreams) {
  FillAndWait(memory_, 0, kBytes);
  const CUstream stream = BeginOnNewStream();
  AddOne(driver(), memory_, memory_, kBytes, stream);
  const CUgraphExec executable = Instantiate(End(stream));
  const CUstream other = MakeStream(CU_STREAM_NON_BLOCKING);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(cuda().cuGraphLaunch(executable, round % 2 == 0 ? stream : other), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory_, kBytes), All(20));
}

TEST_F(Graphs, OutliveTheGraphTheyWereMadeFrom) {
  const CUgraph graph = Memset(memory_, 9);
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory_, kBytes), All(9)) << "what was launched runs to its end";
}

TEST_F(Graphs, RefuseWhatCannotBe) {
  CUgraphExec executable = nullptr;
  EXPECT_EQ(cuda().cuGraphInstantiate(&executable, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphInstantiate(&executable, Empty(), 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda().cuGraphLaunch(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Graphs, AreNotLaunchedIntoACapture) {
  const CUgraphExec executable = Instantiate(Memset(Allocate(kBytes), 1));
  const CUstream stream = BeginOnNewStream();
  EXPECT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Graphs, OfNothingCanBeMadeAndLaunched) {
  const CUgraph graph = Get(cuda().cuGraphCreate, 0);
  EXPECT_EQ(NodesOf(graph), 0u);
  RunGraph(Instantiate(graph), MakeStream());
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
}

// An object that reports its own destruction, which every test of them ends with.
class UserObjects : public Graphs {
 protected:
  void TearDown() override {
    if (!HasFailure()) ended_.wait();  // after a failure a graph may own it still
  }
  static void Note(void* promise) { static_cast<std::promise<void>*>(promise)->set_value(); }

  UserObject Make() { return UserObject::Create(driver(), &Note, &promise_).value(); }
  bool HasEnded() { return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  std::promise<void> promise_;
  std::future<void> ended_ = promise_.get_future();
};

TEST_F(UserObjects, EndWithTheirLastReference) {
  UserObject object = Make();
  ASSERT_EQ(cuda().cuUserObjectRetain(object.get(), 2), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuUserObjectRelease(object.get(), 2), CUDA_SUCCESS);
  EXPECT_FALSE(HasEnded());
  ASSERT_TRUE(object.Release().ok());
}

TEST_F(UserObjects, LiveAsLongAsAGraphAndWhatWasInstantiatedFromIt) {
  const CUgraph graph = Empty();
  UserObject object = Make();
  ASSERT_TRUE(object.MoveTo(graph).ok());
  EXPECT_FALSE(object.valid());
  const CUgraphExec first = Instantiate(graph);
  const CUgraphExec second = Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(first), CUDA_SUCCESS);
  EXPECT_FALSE(HasEnded());
  ASSERT_EQ(Destroy(second), CUDA_SUCCESS);
}

TEST_F(UserObjects, LiveAsLongAsALaunchRuns) {
  const CUstream stream = BeginOnNewStream();
  Hold(stream);
  const CUgraph graph = End(stream);
  ASSERT_TRUE(Make().MoveTo(graph).ok());
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  EXPECT_FALSE(HasEnded());
  LetGo();
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(UserObjects, CanBeGivenToAGraphWhileItIsCaptured) {
  const CUstream stream = BeginOnNewStream();
  const CUgraph making = GraphInCapture(driver(), stream).value();
  ASSERT_TRUE(Make().MoveTo(making).ok());
  const CUgraph graph = End(stream);
  EXPECT_EQ(graph, making);
  EXPECT_FALSE(HasEnded());
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
}

TEST_F(UserObjects, EndWithACaptureThatFails) {
  const CUstream stream = BeginOnNewStream();
  ASSERT_TRUE(Make().MoveTo(GraphInCapture(driver(), stream).value()).ok());
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(UserObjects, CanBeTakenBackFromAGraph) {
  const CUgraph graph = Empty();
  UserObject object = Make();
  ASSERT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 2, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuGraphReleaseUserObject(graph, object.get(), 2), CUDA_SUCCESS);
  EXPECT_FALSE(HasEnded());
  ASSERT_TRUE(object.Release().ok());
}

TEST_F(UserObjects, RefuseBadArguments) {
  constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
  CUuserObject made = nullptr;
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &promise_, &Note, 1, 0), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &promise_, &Note, 0, 1), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &promise_, &Note, 1, 3), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &promise_, nullptr, 1, 1), kInvalid);
  const CUgraph graph = Empty();
  UserObject object = Make();
  EXPECT_EQ(cuda().cuUserObjectRetain(object.get(), 0), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectRelease(object.get(), 0), kInvalid);
  EXPECT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 0, 0), kInvalid);
  EXPECT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 1, 2), kInvalid);
  EXPECT_EQ(cuda().cuGraphReleaseUserObject(graph, object.get(), 0), kInvalid);
  ASSERT_TRUE(object.Release().ok());
}

}  // namespace
}  // namespace commpool::internal::testing
