// The main job across processes: one process for each rank, under mpirun.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "commpool/mpi.h"
#include "src/library/base/bytes.h"
#include "src/library/pool/runtime.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "src/library/registration/window_book.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/rank_group.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

int GatherOverMpi(const void* sent, void* received, size_t bytes, void*) {
  const int count = static_cast<int>(bytes);
  return MPI_Allgather(sent, count, MPI_BYTE, received, count, MPI_BYTE, MPI_COMM_WORLD);
}

class ProcessRanks : public DriverTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!driver().nccl.has_windows()) GTEST_SKIP() << driver().nccl.WhyNoWindows();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    COMMPOOL_REQUIRE_DEVICES(ranks_);
    setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
    context_ = PrimaryContext::Retain(driver(), rank_).value();
    current_.emplace(driver(), context_);
    ncclUniqueId id = {};
    if (rank_ == 0) {
      ASSERT_EQ(driver().nccl.ncclGetUniqueId(&id), ncclSuccess);
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    ASSERT_EQ(driver().nccl.ncclCommInitRank(&communicator_, ranks_, id, rank_), ncclSuccess);
    ASSERT_EQ(driver().cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    runtime_ = std::make_unique<Runtime>(shared_driver());
  }
  void TearDown() override {
    pool_.reset();
    runtime_.reset();
    if (communicator_ == nullptr) return;
    EXPECT_EQ(driver().nccl.ncclCommDestroy(communicator_), ncclSuccess);
    EXPECT_EQ(driver().cuda.cuStreamDestroy(stream_), CUDA_SUCCESS);
    current_.reset();
  }

  std::vector<uint64_t> GatherNumbers(uint64_t mine) const {
    std::vector<uint64_t> all(static_cast<size_t>(ranks_));
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
    return all;
  }

  void ExpectSum(CUdeviceptr block, size_t count) {
    const CudaDriver& cuda = driver().cuda;
    std::vector<float> values(count, static_cast<float>(rank_ + 1));
    EXPECT_EQ(cuda.cuMemcpyHtoDAsync(block, values.data(), count * sizeof(float), stream_), CUDA_SUCCESS);
    EXPECT_EQ(driver().nccl.ncclAllReduce(reinterpret_cast<void*>(block), reinterpret_cast<void*>(block), count,
                                          ncclFloat, ncclSum, communicator_, stream_),
              ncclSuccess);
    EXPECT_EQ(cuda.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuda.cuMemcpyDtoH(values.data(), block, count * sizeof(float)), CUDA_SUCCESS);
    EXPECT_EQ(values, std::vector<float>(count, static_cast<float>(ranks_ * (ranks_ + 1) / 2)));
  }

  Pool& MakePool(const commpool::Agreement& agreement, uint64_t reserved_bytes = 8 * kMiB) {
    PoolConfiguration configuration;
    configuration.backing.placement.device = rank_;
    configuration.home = communicator_;
    configuration.all_gather = agreement.all_gather;
    configuration.all_gather_context = agreement.context;
    pool_ = runtime_->pools().Find(runtime_->CreatePool(configuration).value()).value();
    ExpectOk({pool_->mode().Reserve(reserved_bytes)});
    return *pool_;
  }
  void EndPool() { ExpectOk({pool_->Close(), runtime_->DestroyPool(pool_->handle())}); }
  CUdeviceptr Allocate(uint64_t bytes) { return runtime_->AllocateFrom(pool_->handle(), bytes, stream_).value(); }
  std::optional<WindowPlace> WindowOf(CUdeviceptr block) { return runtime_->windows().Find(communicator_, block); }

  void ExpectWindowAtEqualOffsets(CUdeviceptr block) {
    const std::vector<uint64_t> offsets = GatherNumbers(WindowOf(block).value().offset);
    EXPECT_EQ(std::count(offsets.begin(), offsets.end(), offsets[0]), ranks_);
  }

  void RunMainJob(const commpool::Agreement& agreement) {
    constexpr size_t kCount = 100000;
    Pool& pool = MakePool(agreement);
    const ScopeHandle scope = runtime_->scopes().Begin({.pool = pool_}).value();
    for (int step = 0; step < 3; ++step) {
      const CUdeviceptr block = runtime_->Allocate(rank_, kCount * sizeof(float), stream_).value();
      ExpectWindowAtEqualOffsets(block);
      ExpectSum(block, kCount);
      ExpectOk({runtime_->Free(block)});
      EXPECT_GE(pool.mode().Reclaim().value(), kCount * sizeof(float));
    }
    ExpectOk({runtime_->scopes().End(scope)});
    EndPool();
  }
  int IntAt(CUdeviceptr address) const {
    int value = -1;
    EXPECT_EQ(driver().cuda.cuMemcpyDtoH(&value, address, sizeof(value)), CUDA_SUCCESS);
    return value;
  }

  // NCCL has mapped the window's memory of all ranks by itself, elsewhere: the same bytes are there.
  void ExpectWhatNcclMapped(CUdeviceptr block, const PeerPlaces& places) {
    if (OnEmulator()) return;  // its NCCL maps none
    const WindowPlace window = WindowOf(block).value();
    const Communicator described = DescribeCommunicator(driver(), communicator_, 60000).value();
    const auto record = ReadWindowRecord(driver(), described, window.window).value();
    if (!record) return;  // of a version whose records are not known
    for (int other = 0; other < ranks_; ++other) {
      const auto rank = static_cast<uint64_t>(other);
      const CUdeviceptr of_nccl =
          record->fields.first_rank + rank * (uint64_t{record->fields.stride_4g} << 32) + window.offset;
      EXPECT_EQ(IntAt(of_nccl), IntAt(places.first + rank * places.stride_bytes)) << "rank " << other;
    }
  }

  int rank_ = 0;
  int ranks_ = 1;
  PrimaryContext context_;
  std::optional<ContextGuard> current_;
  ncclComm_t communicator_ = nullptr;
  CUstream stream_ = nullptr;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<Pool> pool_;
};

TEST_F(ProcessRanks, ReduceScopedBlocksOfASymmetricPool) { RunMainJob({}); }

// Each rank writes for each other one, at its address there.
TEST_F(ProcessRanks, WriteToEachOtherAtTheirAddresses) {
  Pool& pool = MakePool({}, 4 * kMiB);
  ExpectOk({pool.mode().AsSymmetric()->MapPeers()});
  const CUdeviceptr block = Allocate(kMiB);
  const PeerPlaces places = pool.mode().AsSymmetric()->PeersOf(block).value();
  ASSERT_EQ(places.ranks, ranks_);
  const auto slot = [](CUdeviceptr of, int writer) { return of + static_cast<uint64_t>(writer) * sizeof(int); };
  for (int other = 0; other < ranks_; ++other) {
    const CUdeviceptr there = places.first + static_cast<uint64_t>(other) * places.stride_bytes;
    const int word = 100 * rank_ + other;
    EXPECT_EQ(driver().cuda.cuMemcpyHtoD(slot(there, rank_), &word, sizeof(word)), CUDA_SUCCESS);
  }
  // A small copy from pageable memory may return before it has arrived, and no barrier of hosts waits for it.
  EXPECT_EQ(driver().cuda.cuCtxSynchronize(), CUDA_SUCCESS);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int writer = 0; writer < ranks_; ++writer) EXPECT_EQ(IntAt(slot(block, writer)), 100 * writer + rank_);
  ExpectWhatNcclMapped(block, places);
  MPI_Barrier(MPI_COMM_WORLD);
  ExpectOk({runtime_->Free(block)});
  EndPool();
}

TEST_F(ProcessRanks, AgreeOverTheCallersAllGather) { RunMainJob({GatherOverMpi, nullptr}); }

TEST_F(ProcessRanks, AgreeOverMpiInOneWord) {
  MpiAgreement agreement(MPI_COMM_WORLD);
  RunMainJob(agreement);
}

// Twice: the second time ends windows that a wake made.
TEST_F(ProcessRanks, SleepWithTheirWindowsAndReduceAgainInNewOnes) {
  constexpr size_t kCount = 1000000;
  Pool& pool = MakePool({});
  const CUdeviceptr block = Allocate(kCount * sizeof(float));
  const std::vector<float> kept(kCount, static_cast<float>(rank_ + 10));
  for (const Keep keep : {Keep::kHost, Keep::kDiscard}) {
    ExpectSum(block, kCount);
    EXPECT_EQ(driver().cuda.cuMemcpyHtoDAsync(block, kept.data(), kCount * sizeof(float), stream_), CUDA_SUCCESS);
    const uint64_t offset = WindowOf(block).value().offset;
    ExpectOk({SleepAlone(pool, {.keep = keep})});
    EXPECT_FALSE(WindowOf(block)) << "an old window";
    EXPECT_EQ(pool.Statistics().asleep_bytes, pool.Statistics().reserved_bytes.current);
    ExpectOk({WakeAlone(pool)});
    EXPECT_EQ(WindowOf(block).value().offset, offset);
    ExpectWindowAtEqualOffsets(block);
    if (keep == Keep::kDiscard) continue;
    std::vector<float> found(kCount);
    EXPECT_EQ(driver().cuda.cuMemcpyDtoH(found.data(), block, kCount * sizeof(float)), CUDA_SUCCESS);
    EXPECT_EQ(found, kept);
  }
  ExpectSum(block, kCount);
  ExpectOk({runtime_->Free(block)});
  EndPool();
}

// A failure on one rank fails the job: mpirun looks at every rank's exit code.
class Mpi : public ::testing::Environment {
 public:
  void SetUp() override { MPI_Init(nullptr, nullptr); }
  void TearDown() override { MPI_Finalize(); }
};
[[maybe_unused]] ::testing::Environment* const kMpi = ::testing::AddGlobalTestEnvironment(new Mpi);

}  // namespace
}  // namespace commpool::internal::testing
