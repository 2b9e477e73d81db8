// Many sleeps under graphs that captured all-reduces, all-gathers and reduce-scatters over windows, on two ranks, four
// and eight, with windows of others that come and go meanwhile. Nobody announces the captures, as with
// torch.cuda.graph.
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/driver/emulator_extension.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kMany = setenv("COMMPOOL_EMULATOR", "devices=8", 1);

// The emulator copies on the host: it would take minutes for the sizes of a GPU.
std::vector<uint64_t> Sizes() {
  if (OnEmulator()) return {8 * kKiB, 64 * kKiB, 256 * kKiB};
  return {8 * kKiB, 256 * kKiB, 8 * kMiB, 64 * kMiB};
}

// A rank's part of the collectives of one size: its input, their sum, what all ranks have, its share of what all have.
struct Buffers {
  CUdeviceptr input = 0;
  CUdeviceptr sum = 0;
  CUdeviceptr gathered = 0;
  CUdeviceptr scattered = 0;
  CUgraphExec graph = nullptr;
};

// What a buffer repeats: whole numbers, exact as floats. They differ along a buffer, so that a collective at a wrong
// offset shows.
using Piece = std::array<float, 256>;

Piece PieceOf(int times, int seed, int number) {
  Piece piece;
  for (size_t at = 0; at < piece.size(); ++at) {
    piece[at] = static_cast<float>(times * (static_cast<int>(at) + seed) + number);
  }
  return piece;
}

bool Repeats(const float* found, size_t count, const Piece& piece) {
  for (size_t at = 0; at < count; at += piece.size()) {
    if (std::memcmp(found + at, piece.data(), sizeof(piece)) != 0) return false;
  }
  return true;
}

class CapturedSleeps : public SymmetricTest, public ::testing::WithParamInterface<int> {
 protected:
  CapturedSleeps() : SymmetricTest(GetParam()) {}

  void CaptureAll() {
    for (const uint64_t bytes : sizes_) {
      ExpectOk(Reserve((3 + static_cast<uint64_t>(group().size())) * bytes));
      std::vector<Buffers>& ranks = captured_.emplace_back(static_cast<size_t>(group().size()));
      ForEach([&](Rank& rank) {
        Buffers& own = ranks[rank.index()];
        for (CUdeviceptr* const buffer : {&own.input, &own.sum, &own.scattered}) {
          *buffer = AllocateOn(rank, bytes).value();
        }
        own.gathered = AllocateOn(rank, bytes * ranks.size()).value();
        Capture(rank, bytes, own);
      });
    }
  }
  void ReplayAll(int seed) {
    ForEach([&](Rank& rank) {
      for (size_t size = 0; size < sizes_.size(); ++size) {
        Replay(rank, sizes_[size], captured_[size][rank.index()], seed);
      }
    });
  }
  void EndAll() {
    for (const std::vector<Buffers>& ranks : captured_) {
      for (const Buffers& own : ranks) {
        EXPECT_EQ(driver().cuda.cuGraphExecDestroy(own.graph), CUDA_SUCCESS);
        ExpectOk({runtime().Free(own.input), runtime().Free(own.sum), runtime().Free(own.gathered),
                  runtime().Free(own.scattered)});
      }
    }
    if (!copying_.empty()) ExpectOk(Deregister(copying_));
  }
  // Where a stranger has bytes, another pool of home has windows of as many while this one sleeps.
  void SleepAndWake(uint64_t stranger_bytes) {
    ExpectOk(Sleep());
    if (stranger_bytes > 0) LetAStrangerComeAndGo(stranger_bytes);
    ExpectOk(Wake());
  }
  // From now on the all-gathers go over a communicator that uses no SMs: NCCL carries them out by copy engines.
  void GatherByCopies() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    copying_ = Another(0, config);
    ExpectOk(Register(copying_));
  }
  // With a stranger once in so many times.
  void SleepAndReplay(int times, int stranger_in) {
    for (int sleeps = 0; sleeps < times; ++sleeps) {
      const auto strangers = static_cast<uint64_t>(1 + sleeps / stranger_in);
      SleepAndWake(sleeps % stranger_in == 0 ? 2 * kMiB * strangers : 0);
      ReplayAll(sleeps);
    }
    EndAll();
  }
  // Of the smallest size, by ranks.
  std::vector<CUdeviceptr> FirstInputs() const {
    std::vector<CUdeviceptr> inputs;
    for (const Buffers& buffers : captured_.front()) inputs.push_back(buffers.input);
    return inputs;
  }

 private:
  void LetAStrangerComeAndGo(uint64_t bytes) {
    ForEach([&](Rank& rank) {
      PoolConfiguration configuration = Configured(rank);
      configuration.name = "stranger";
      const PoolHandle handle = runtime().CreatePool(std::move(configuration)).value();
      const std::shared_ptr<Pool> stranger = runtime().pools().Find(handle).value();
      ExpectOk({stranger->mode().Reserve(bytes), stranger->Close()});
    });
  }
  void Capture(const Rank& rank, uint64_t bytes, Buffers& buffers) {
    const CudaDriver& cuda = driver().cuda;
    const NcclLibrary& nccl = driver().nccl;
    const size_t count = bytes / sizeof(float);
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    const auto gather = [&] {
      const ncclComm_t gathering = copying_.empty() ? rank.communicator : copying_[rank.index()];
      EXPECT_EQ(nccl.ncclAllGather(pointer(buffers.input), pointer(buffers.gathered), count, ncclFloat, gathering,
                                   rank.stream),
                ncclSuccess);
    };
    // For its first copies NCCL makes a window of its own: before the capture.
    if (!copying_.empty()) {
      gather();
      EXPECT_EQ(cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    }
    CUgraph graph = nullptr;
    EXPECT_EQ(cuda.cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(nccl.ncclAllReduce(pointer(buffers.input), pointer(buffers.sum), count, ncclFloat, ncclSum,
                                 rank.communicator, rank.stream),
              ncclSuccess);
    gather();
    EXPECT_EQ(nccl.ncclReduceScatter(pointer(buffers.gathered), pointer(buffers.scattered), count, ncclFloat, ncclSum,
                                     rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(CopiesOf(graph) > 0, !copying_.empty());
    EXPECT_EQ(cuda.cuGraphInstantiateWithFlags(&buffers.graph, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  int CopiesOf(CUgraph graph) const {
    size_t count = 0;
    EXPECT_EQ(driver().cuda.cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    EXPECT_EQ(driver().cuda.cuGraphGetNodes(graph, nodes.data(), &count), CUDA_SUCCESS);
    int copies = 0;
    for (const CUgraphNode node : nodes) {
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      EXPECT_EQ(driver().cuda.cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
      copies += type == CU_GRAPH_NODE_TYPE_MEMCPY ? 1 : 0;
    }
    return copies;
  }
  void Replay(const Rank& rank, uint64_t bytes, const Buffers& buffers, int seed) {
    const CudaDriver& cuda = driver().cuda;
    const size_t count = bytes / sizeof(float);
    const auto ranks = static_cast<size_t>(rank.ranks);
    // Not std::vector: to clear megabytes would take most of the test's time.
    const std::unique_ptr<float[]> input(new float[count]);
    const std::unique_ptr<float[]> sum(new float[count]);
    const std::unique_ptr<float[]> gathered(new float[count * ranks]);
    const std::unique_ptr<float[]> scattered(new float[count]);
    const Piece own = PieceOf(1, seed, rank.number);
    for (size_t at = 0; at < count; at += own.size()) std::memcpy(&input[at], own.data(), sizeof(own));
    EXPECT_EQ(cuda.cuMemcpyHtoDAsync(buffers.input, input.get(), bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuGraphLaunch(buffers.graph, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemcpyDtoHAsync(sum.get(), buffers.sum, bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemcpyDtoHAsync(gathered.get(), buffers.gathered, bytes * ranks, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemcpyDtoHAsync(scattered.get(), buffers.scattered, bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_TRUE(Repeats(sum.get(), count, PieceOf(rank.ranks, seed, rank.ranks * (rank.ranks - 1) / 2)))
        << bytes << " bytes, sleep " << seed;
    for (size_t other = 0; other < ranks; ++other) {
      EXPECT_TRUE(Repeats(&gathered[other * count], count, PieceOf(1, seed, static_cast<int>(other))))
          << bytes << " bytes of rank " << other << ", sleep " << seed;
    }
    EXPECT_TRUE(Repeats(scattered.get(), count, PieceOf(rank.ranks, seed, rank.ranks * rank.number)))
        << bytes << " bytes, sleep " << seed;
  }

  std::vector<ncclComm_t> copying_;  // by ranks, for the all-gathers; empty: these go over home
  const std::vector<uint64_t> sizes_ = Sizes();
  std::vector<std::vector<Buffers>> captured_;  // of each size, by ranks
};

TEST_P(CapturedSleeps, ComeOutRightBitForBit) {
  if (group().size() < GetParam()) GTEST_SKIP() << "needs " << GetParam() << " devices";
  ExpectOk(Create());
  CaptureAll();
  SleepAndReplay(100, 10);
}

TEST_P(CapturedSleeps, ComeOutRightWhereCopyEnginesGather) {
  if (group().size() < GetParam()) GTEST_SKIP() << "needs " << GetParam() << " devices";
  if (driver().nccl.version < 22803) GTEST_SKIP() << "NCCL gathers by copy engines since 2.28.3";
  ExpectOk(Create());
  GatherByCopies();
  CaptureAll();
  SleepAndReplay(20, 5);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CapturedSleeps, ::testing::Values(2, 4, 8));

// The switch of RankGroup keeps a GPU from multicast: only the emulator runs these.
class MulticastSleeps : public CapturedSleeps {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("multicast stays off on hardware");
    if (getenv("NCCL_NVLS_ENABLE") != std::string("1")) GTEST_SKIP() << "multicast_sleeps_test runs it";
    CapturedSleeps::SetUp();
  }
  void ExpectMulticast() {
    for (const CUdeviceptr block : FirstInputs()) {
      std::array<char, 256> reason = {};
      EXPECT_EQ(COMMPOOL_EXTENSION(commpoolEmulatorNvls)(block, reason.data(), reason.size()), 1) << reason.data();
    }
  }
};

TEST_P(MulticastSleeps, BindTheirWindowsAgain) {
  ExpectOk(Create());
  CaptureAll();
  ExpectMulticast();
  for (int sleeps = 0; sleeps < 10; ++sleeps) {
    SleepAndWake(sleeps == 5 ? 4 * kMiB : 0);
    ExpectMulticast();
    ReplayAll(sleeps);
  }
  EndAll();
}

INSTANTIATE_TEST_SUITE_P(Ranks, MulticastSleeps, ::testing::Values(4));

}  // namespace
}  // namespace commpool::internal::testing
