// Windows that end as a pool falls asleep and come back to their places as it wakes: graphs that captured collectives
// over them hold, though nobody announced the captures. Where NCCL places one elsewhere every rank says so.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/pool/pool_fixture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kCount = 8 * kKiB / sizeof(float);

// A sum over a block of each rank, captured as torch.cuda.graph does.
class CapturedSum {
 public:
  CapturedSum(const Driver& driver, std::vector<CUdeviceptr> blocks)
      : driver_(driver), blocks_(std::move(blocks)), graphs_(blocks_.size()) {}

  Status Capture(const Rank& rank) {
    const CudaDriver& cuda = driver_.cuda;
    CUgraph graph = nullptr;
    auto* const block = reinterpret_cast<void*>(BlockOf(rank));
    EXPECT_EQ(cuda.cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(driver_.nccl.ncclAllReduce(block, block, kCount, ncclFloat, ncclSum, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphInstantiateWithFlags(&GraphOf(rank), graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
    return Status();
  }
  Status Replay(const Rank& rank, int seed) {
    const CudaDriver& cuda = driver_.cuda;
    std::vector<float> sum(kCount, static_cast<float>(rank.number + seed));
    const size_t bytes = kCount * sizeof(float);
    EXPECT_EQ(cuda.cuMemcpyHtoDAsync(BlockOf(rank), sum.data(), bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphLaunch(GraphOf(rank), rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemcpyDtoHAsync(sum.data(), BlockOf(rank), bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const int of_all = rank.ranks * (rank.ranks - 1) / 2 + rank.ranks * seed;
    EXPECT_EQ(sum, std::vector<float>(kCount, static_cast<float>(of_all)));
    return Status();
  }
  Status Destroy(const Rank& rank) {
    EXPECT_EQ(driver_.cuda.cuGraphExecDestroy(GraphOf(rank)), CUDA_SUCCESS);
    return Status();
  }
  CUdeviceptr BlockOf(const Rank& rank) const { return blocks_[static_cast<size_t>(rank.number)]; }
  const std::vector<CUdeviceptr>& blocks() const { return blocks_; }

 private:
  CUgraphExec& GraphOf(const Rank& rank) { return graphs_[static_cast<size_t>(rank.number)]; }

  const Driver& driver_;
  const std::vector<CUdeviceptr> blocks_;
  std::vector<CUgraphExec> graphs_;
};

class WindowReturn : public SymmetricTest {
 protected:
  Statuses Sleep(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return PoolOf(rank).Sleep(request); });
  }
  Statuses Wake() {
    return Run([&](Rank& rank) { return PoolOf(rank).Wake(); });
  }
  // In a segment of their own.
  std::vector<CUdeviceptr> Grow(uint64_t bytes) {
    ExpectOk(Reserve(bytes));
    return Allocate(bytes);
  }
  CapturedSum& Captured(std::vector<CUdeviceptr> blocks) {
    CapturedSum& sum = sums_.emplace_back(driver(), std::move(blocks));
    ExpectOk(Run([&](Rank& rank) { return sum.Capture(rank); }));
    return sum;
  }
  void ReplayAll(int seed) {
    for (CapturedSum& sum : sums_) ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, seed); }));
  }
  void EndAll() {
    for (CapturedSum& sum : sums_) {
      ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
      Free(sum.blocks());
    }
    sums_.clear();
  }
  std::vector<ncclWindow_t> WindowsOf(Rank& rank) {
    std::vector<ncclWindow_t> windows;
    for (const CapturedSum& sum : sums_) {
      windows.push_back(PoolOf(rank).WindowOf(sum.BlockOf(rank), rank.communicator).value().window);
    }
    return windows;
  }
  // Another pool of home, with windows of its own.
  void BringStranger(uint64_t bytes) {
    strangers_.assign(static_cast<size_t>(group().size()), 0);
    ExpectOk(Run([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.name = "stranger";
      strangers_[static_cast<size_t>(rank.number)] = runtime().CreatePool(std::move(configuration)).value();
      return Stranger(rank)->Reserve(bytes);
    }));
  }
  std::shared_ptr<Pool> Stranger(const Rank& rank) {
    return runtime().pools().Find(strangers_[static_cast<size_t>(rank.number)]).value();
  }
  void SendStrangerAway() {
    ExpectOk(Run([&](Rank& rank) { return Stranger(rank)->Close(); }));
  }
  std::string WakeAndListen() {
    ::testing::internal::CaptureStderr();
    ExpectOk(Wake());
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  std::deque<CapturedSum> sums_;
  std::vector<PoolHandle> strangers_;
};

// A of 4 MiB, B of 2; A ends; C of 2 takes its place, D of 4 comes last: one after the other B would come to C's.
TEST_F(WindowReturn, BringsBackWhatCameAfterAnotherWindowEnded) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> a = Grow(4 * kMiB);
  Captured(Grow(2 * kMiB));
  Free(a);
  ExpectOk(Trim(0));
  Captured(Grow(2 * kMiB));
  Captured(Grow(4 * kMiB));
  std::vector<std::vector<ncclWindow_t>> before;
  for (int rank = 0; rank <= last(); ++rank) before.push_back(WindowsOf(group()[rank]));
  for (int sleeps = 0; sleeps < 20; ++sleeps) {
    ExpectOk(Sleep());
    EXPECT_EQ(WakeAndListen(), "");
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_EQ(WindowsOf(group()[rank]), before[static_cast<size_t>(rank)]);
    }
    ReplayAll(sleeps);
  }
  EndAll();
}

TEST_F(WindowReturn, HoldsWhereAStrangersWindowCameAndWent) {
  ExpectOk(Create());
  Captured(Grow(2 * kMiB));
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  SendStrangerAway();
  EXPECT_EQ(WakeAndListen(), "");
  ReplayAll(1);
  EndAll();
}

TEST_F(WindowReturn, IsToldOnEveryRankWhereAStrangersWindowIsInTheWay) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> first = Grow(2 * kMiB);
  const std::vector<CUdeviceptr> second = Grow(4 * kMiB);
  ExpectOk(Sleep());
  BringStranger(2 * kMiB);
  const std::string told = WakeAndListen();
  const std::string line =
      "woke, and NCCL placed 2 of 2 windows, first that of segment 0 (2 MiB) with communicator 0, elsewhere than "
      "before";
  size_t lines = 0;
  for (size_t at = told.find(line); at != std::string::npos; at = told.find(line, at + 1)) ++lines;
  EXPECT_EQ(lines, static_cast<size_t>(group().size())) << told;
  // From now on they are at home there.
  ExpectOk(Sleep());
  EXPECT_EQ(WakeAndListen(), "");
  SendStrangerAway();
  Free(first);
  Free(second);
}

TEST_F(WindowReturn, IsNotWatchedWhereGraphsHoldNoCollectives) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> blocks = Grow(2 * kMiB);
  ExpectOk(Sleep({.graphs = LiveGraphs::kNoCollectives}));
  BringStranger(2 * kMiB);
  EXPECT_EQ(WakeAndListen(), "");
  SendStrangerAway();
  Free(blocks);
}

TEST_F(WindowReturn, CoversEveryCommunicator) {
  ExpectOk(Create());
  const std::vector<CUdeviceptr> blocks = Grow(2 * kMiB);
  std::vector<ncclComm_t> others = group().ConnectFrom(1);
  const auto other_of = [&](const Rank& rank) { return others[static_cast<size_t>(rank.number)]; };
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).RegisterWith(other_of(rank)); }));
  const auto window_of = [&](int rank) {
    return PoolOf(group()[rank])
        .WindowOf(blocks[static_cast<size_t>(rank)], others[static_cast<size_t>(rank)])
        .value()
        .window;
  };
  std::vector<ncclWindow_t> before;
  for (int rank = 1; rank <= last(); ++rank) before.push_back(window_of(rank));
  ExpectOk(Sleep());
  EXPECT_EQ(WakeAndListen(), "");
  for (int rank = 1; rank <= last(); ++rank) EXPECT_EQ(window_of(rank), before[static_cast<size_t>(rank) - 1]);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).Deregister(other_of(rank)); }));
  group().Destroy(others);
  Free(blocks);
}

}  // namespace
}  // namespace commpool::internal::testing
