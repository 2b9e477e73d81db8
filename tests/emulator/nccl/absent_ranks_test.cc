// ranks=one: a communicator of 64 ranks, of which this process is one, and the others are nowhere.
#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kAlone = setenv("COMMPOOL_EMULATOR", "kernels=none,ranks=one", 1);

constexpr int kRanks = 64;
constexpr int kRank = 5;
constexpr size_t kBytes = 64 << 20;

class AbsentRanks : public EmulatedNccl {};

// The one rank that runs, and what it needs.
struct OneRank {
  OneRank() {
    ncclUniqueId id;
    EXPECT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(Api().ncclCommInitRank(&comm, kRanks, id, kRank), ncclSuccess);
    EXPECT_EQ(Api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~OneRank() {
    EXPECT_EQ(Api().cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
  }
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;

  const CurrentDevice device{0};
  const DeviceMemory memory{0, kBytes};
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
};

TEST_F(AbsentRanks, TakePartInCollectivesAndTransfers) {
  const OneRank rank;
  char* const part = rank.memory.data() + kRank * (kBytes / kRanks);
  EXPECT_EQ(Api().ncclAllGather(part, rank.memory.data(), kBytes / kRanks, ncclUint8, rank.comm, rank.stream),
            ncclSuccess);
  EXPECT_EQ(Api().ncclAllReduce(part, part, 8, ncclFloat, ncclSum, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().ncclBroadcast(part, part, 8, ncclFloat, kRanks - 1, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().ncclRecv(part, 8, ncclFloat, kRank - 1, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().ncclSend(part, 8, ncclFloat, kRank + 1, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(Api().ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess);
}

TEST_F(AbsentRanks, HaveNoKnownColours) {
  const OneRank rank;
  ncclComm_t child = nullptr;
  EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, kRank, &child, nullptr), ncclInvalidUsage);
  EXPECT_EQ(Api().ncclCommSplit(rank.comm, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
