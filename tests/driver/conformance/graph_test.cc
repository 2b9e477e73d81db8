// Graphs and their replay, and user objects.
//
// Sources: the driver API's section "Graph Management" (cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy,
// cuUserObjectCreate, cuGraphRetainUserObject) and the programming guide's "CUDA User Objects", and what an H200 with
// driver 580 answered.
#include <cuda.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "src/library/driver/graph_handles.h"
#include "tests/driver/capturing.h"
#include "tests/driver/conformance/conformance_fixture.h"
#include "tools/common/launch.h"

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
  // target = source + 1, for each byte.
  void AddOne(CUdeviceptr source, CUdeviceptr target, CUstream stream) {
    const auto run = [](const std::vector<const void*>& reads, const std::vector<void*>& writes) {
      const auto* from = static_cast<const uint8_t*>(reads.at(0));
      auto* to = static_cast<uint8_t*>(writes.at(0));
      for (uint64_t index = 0; index < kBytes; ++index) to[index] = static_cast<uint8_t>(from[index] + 1);
    };
    ExpectOk(Launch(driver(), stream, {{source, kBytes}}, {{target, kBytes}}, run));
  }
  std::vector<uint8_t> All(uint8_t value) { return std::vector<uint8_t>(kBytes, value); }
};

TEST_F(Graphs, RunAsOftenAsTheyAreLaunched) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUgraphExec executable = Instantiate(Memset(memory, 7));
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  for (int round = 0; round < 3; ++round) {
    Fill(memory, 1, kBytes, stream);
    ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(memory, kBytes), All(7));
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
  ASSERT_EQ(cuda().cuGraphLaunch(Instantiate(graph), stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
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
    ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Read(third, kBytes), All(5));
  }
}

TEST_F(Graphs, StandInTheirStreamAsOneOperation) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUdeviceptr copy = Allocate(kBytes);
  const CUgraphExec executable = Instantiate(Memset(memory, 8));
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  std::promise<void> gate;
  const auto wait = [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); };
  Fill(memory, 1, kBytes, stream);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuLaunchHostFunc(stream, wait, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuMemcpyDtoDAsync(copy, memory, kBytes, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.set_value();
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(copy, kBytes), All(8));
}

TEST_F(Graphs, OfOneExecutableRunOneAfterAnotherInAnyStreams) {
  const CUdeviceptr memory = Allocate(kBytes);
  Fill(memory, 0, kBytes);
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUstream stream = BeginOnNewStream();
  AddOne(memory, memory, stream);
  const CUgraphExec executable = Instantiate(End(stream));
  const CUstream other = MakeStream(CU_STREAM_NON_BLOCKING);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(cuda().cuGraphLaunch(executable, round % 2 == 0 ? stream : other), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory, kBytes), All(20));
}

TEST_F(Graphs, OutliveTheGraphTheyWereMadeFrom) {
  const CUdeviceptr memory = Allocate(kBytes);
  const CUgraph graph = Memset(memory, 9);
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  const CUstream stream = MakeStream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Read(memory, kBytes), All(9)) << "what was launched runs to its end";
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
  CUgraph graph = nullptr;
  ASSERT_EQ(cuda().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(NodesOf(graph), 0u);
  const CUstream stream = MakeStream();
  EXPECT_EQ(cuda().cuGraphLaunch(Instantiate(graph), stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuGraphDestroy(graph), CUDA_SUCCESS);
}

// Objects that report their own destruction.
class UserObjects : public Graphs {
 protected:
  struct Ended {
    std::promise<void> promise;
    std::future<void> future = promise.get_future();
    bool now() { return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  };
  static void End(void* ended) { static_cast<Ended*>(ended)->promise.set_value(); }

  UserObject Make(Ended& ended) { return UserObject::Create(driver(), &UserObjects::End, &ended).value(); }
  CUgraph CaptureEnd(CUstream stream) { return Graphs::End(stream); }
};

TEST_F(UserObjects, EndWithTheirLastReference) {
  Ended ended;
  UserObject object = Make(ended);
  ASSERT_EQ(cuda().cuUserObjectRetain(object.get(), 2), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuUserObjectRelease(object.get(), 2), CUDA_SUCCESS);
  EXPECT_FALSE(ended.now());
  ASSERT_TRUE(object.Release().ok());
  ended.future.wait();
}

TEST_F(UserObjects, LiveAsLongAsAGraphAndWhatWasInstantiatedFromIt) {
  Ended ended;
  const CUgraph graph = Empty();
  UserObject object = Make(ended);
  ASSERT_TRUE(object.MoveTo(graph).ok());
  EXPECT_FALSE(object.valid());
  const CUgraphExec first = Instantiate(graph);
  const CUgraphExec second = Instantiate(graph);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(first), CUDA_SUCCESS);
  EXPECT_FALSE(ended.now());
  ASSERT_EQ(Destroy(second), CUDA_SUCCESS);
  ended.future.wait();
}

TEST_F(UserObjects, LiveAsLongAsALaunchRuns) {
  Ended ended;
  std::promise<void> gate;
  const auto wait = [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); };
  const CUstream stream = BeginOnNewStream();
  ASSERT_EQ(cuda().cuLaunchHostFunc(stream, wait, &gate), CUDA_SUCCESS);
  const CUgraph graph = CaptureEnd(stream);
  ASSERT_TRUE(Make(ended).MoveTo(graph).ok());
  const CUgraphExec executable = Instantiate(graph);
  ASSERT_EQ(cuda().cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(Destroy(executable), CUDA_SUCCESS);
  EXPECT_FALSE(ended.now());
  gate.set_value();
  ASSERT_EQ(cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  ended.future.wait();
}

TEST_F(UserObjects, CanBeGivenToAGraphWhileItIsCaptured) {
  Ended ended;
  const CUstream stream = BeginOnNewStream();
  const Result<CUgraph> making = GraphInCapture(driver(), stream);
  ASSERT_TRUE(making.ok()) << making.status().message();
  ASSERT_TRUE(Make(ended).MoveTo(*making).ok());
  const CUgraph graph = CaptureEnd(stream);
  EXPECT_EQ(graph, *making);
  EXPECT_FALSE(ended.now());
  ASSERT_EQ(Destroy(graph), CUDA_SUCCESS);
  ended.future.wait();
}

TEST_F(UserObjects, EndWithACaptureThatFails) {
  Ended ended;
  const CUstream stream = BeginOnNewStream();
  ASSERT_TRUE(Make(ended).MoveTo(GraphInCapture(driver(), stream).value()).ok());
  EXPECT_EQ(cuda().cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndFails(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ended.future.wait();
}

TEST_F(UserObjects, CanBeTakenBackFromAGraph) {
  Ended ended;
  const CUgraph graph = Empty();
  UserObject object = Make(ended);
  ASSERT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 2, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda().cuGraphReleaseUserObject(graph, object.get(), 2), CUDA_SUCCESS);
  EXPECT_FALSE(ended.now());
  ASSERT_TRUE(object.Release().ok());
  ended.future.wait();
}

TEST_F(UserObjects, RefuseBadArguments) {
  constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
  Ended ended;
  CUuserObject made = nullptr;
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &ended, &UserObjects::End, 1, 0), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &ended, &UserObjects::End, 0, 1), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &ended, &UserObjects::End, 1, 3), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectCreate(&made, &ended, nullptr, 1, 1), kInvalid);
  const CUgraph graph = Empty();
  UserObject object = Make(ended);
  EXPECT_EQ(cuda().cuUserObjectRetain(object.get(), 0), kInvalid);
  EXPECT_EQ(cuda().cuUserObjectRelease(object.get(), 0), kInvalid);
  EXPECT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 0, 0), kInvalid);
  EXPECT_EQ(cuda().cuGraphRetainUserObject(graph, object.get(), 1, 2), kInvalid);
  EXPECT_EQ(cuda().cuGraphReleaseUserObject(graph, object.get(), 0), kInvalid);
  ASSERT_TRUE(object.Release().ok());
  ended.future.wait();
}

}  // namespace
}  // namespace commpool::internal::testing
