// A captured all-reduce over windows of all ranks, whose replays show whether the windows are where they were.
#pragma once

#include <utility>
#include <vector>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {

// A sum over a block of each rank, captured as torch.cuda.graph does.
class CapturedSum {
 public:
  CapturedSum(const Driver& driver, std::vector<CUdeviceptr> blocks)
      : driver_(driver), blocks_(std::move(blocks)), graphs_(blocks_.size()) {}

  void Capture(const Rank& rank) {
    const CudaDriver& cuda = driver_.cuda;
    CUgraph graph = nullptr;
    auto* const block = reinterpret_cast<void*>(BlockOf(rank));
    EXPECT_EQ(cuda.cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(driver_.nccl.ncclAllReduce(block, block, kCount, ncclFloat, ncclSum, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphInstantiateWithFlags(&GraphOf(rank), graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  void Replay(const Rank& rank, int seed) {
    const CudaDriver& cuda = driver_.cuda;
    std::vector<float> sum(kCount, static_cast<float>(rank.number + seed));
    const size_t bytes = kCount * sizeof(float);
    EXPECT_EQ(cuda.cuMemcpyHtoDAsync(BlockOf(rank), sum.data(), bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphLaunch(GraphOf(rank), rank.stream), CUDA_SUCCESS);
    ExpectSum(rank, seed);
  }
  // What the last replay with this seed has written.
  void ExpectSum(const Rank& rank, int seed) const {
    const CudaDriver& cuda = driver_.cuda;
    std::vector<float> sum(kCount);
    EXPECT_EQ(cuda.cuMemcpyDtoHAsync(sum.data(), BlockOf(rank), kCount * sizeof(float), rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const int of_all = rank.ranks * (rank.ranks - 1) / 2 + rank.ranks * seed;
    EXPECT_EQ(sum, std::vector<float>(kCount, static_cast<float>(of_all)));
  }
  void Destroy(const Rank& rank) { EXPECT_EQ(driver_.cuda.cuGraphExecDestroy(GraphOf(rank)), CUDA_SUCCESS); }
  CUdeviceptr BlockOf(const Rank& rank) const { return blocks_[static_cast<size_t>(rank.number)]; }
  const std::vector<CUdeviceptr>& blocks() const { return blocks_; }

 private:
  static constexpr size_t kCount = 8 * kKiB / sizeof(float);

  CUgraphExec& GraphOf(const Rank& rank) { return graphs_[static_cast<size_t>(rank.number)]; }

  const Driver& driver_;
  const std::vector<CUdeviceptr> blocks_;
  std::vector<CUgraphExec> graphs_;
};

}  // namespace commpool::internal::testing
