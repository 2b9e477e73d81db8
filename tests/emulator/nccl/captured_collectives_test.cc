// Collectives in graphs: every rank captures them; each launch of the graph replays them.
#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class CapturedCollectives : public EmulatedNccl {
 protected:
  // Captures the work that `body` submits to the stream.
  static CUgraphExec Capture(CUstream stream, const std::function<void()>& body) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    // Other ranks of this process allocate meanwhile.
    EXPECT_EQ(Api().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    body();
    EXPECT_EQ(Api().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(Api().cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(Api().cuGraphDestroy(graph), CUDA_SUCCESS);
    return executable;
  }
  static ncclResult_t AddInPlace(const Rank& rank, const DeviceMemory& memory, CUstream stream) {
    return Api().ncclAllReduce(memory.data(), memory.data(), kCount, ncclInt32, ncclSum, rank.comm, stream);
  }
  static constexpr size_t kCount = 100;
};

TEST_F(CapturedCollectives, RunOnceForEachLaunchOfTheirGraph) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kCount * sizeof(int));
    Upload(memory.data(), std::vector<int>(kCount, 1));
    const CUgraphExec executable =
        Capture(rank.stream, [&] { EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess); });
    EXPECT_EQ(Download<int>(memory.data(), kCount), std::vector<int>(kCount, 1)) << "captured, not run";
    for (int round = 0; round < 3; ++round) ASSERT_EQ(Api().cuGraphLaunch(executable, rank.stream), CUDA_SUCCESS);
    rank.Synchronize();
    EXPECT_EQ(Download<int>(memory.data(), kCount), std::vector<int>(kCount, 8));
    EXPECT_EQ(Api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  });
}

TEST_F(CapturedCollectives, TakeTheirPlaceAmongOthers) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kCount * sizeof(int));
    Upload(memory.data(), std::vector<int>(kCount, 1));
    const CUgraphExec executable = Capture(rank.stream, [&] {
      EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess);
      EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess);
    });
    EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess);
    ASSERT_EQ(Api().cuGraphLaunch(executable, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(Download<int>(memory.data(), kCount), std::vector<int>(kCount, 16));
    EXPECT_EQ(Api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  });
}

TEST_F(CapturedCollectives, OfADestroyedCommunicatorAreReportedAndLeftOut) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kCount * sizeof(int));
    Upload(memory.data(), std::vector<int>(kCount, 1));
    const CUgraphExec executable =
        Capture(rank.stream, [&] { EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclSuccess); });
    EXPECT_EQ(Api().ncclCommDestroy(rank.comm), ncclSuccess);
    rank.comm = nullptr;
    ASSERT_EQ(Api().cuGraphLaunch(executable, rank.stream), CUDA_SUCCESS);
    rank.Synchronize();
    EXPECT_EQ(Download<int>(memory.data(), kCount), std::vector<int>(kCount, 1));
    EXPECT_EQ(Api().cuGraphExecDestroy(executable), CUDA_SUCCESS);
  });
  EXPECT_NE(TakeReports().find("a graph repeats what is gone: ncclAllReduce"), std::string::npos);
}

TEST_F(CapturedCollectives, AreRefusedByABrokenCapture) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kCount * sizeof(int));
    ASSERT_EQ(Api().cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(Api().cuStreamQuery(rank.stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(AddInPlace(rank, memory, rank.stream), ncclUnhandledCudaError);
    CUgraph graph = nullptr;
    EXPECT_EQ(Api().cuStreamEndCapture(rank.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
