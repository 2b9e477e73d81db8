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
struct OneRank : Rank {
  OneRank() {
    EXPECT_EQ(Api().ncclCommInitRank(&comm, kRanks, NewId(), kRank), ncclSuccess);
    EXPECT_EQ(Api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~OneRank() {
    EXPECT_EQ(Api().cuStreamDestroy(stream), CUDA_SUCCESS);
    Destroy();
  }
  OneRank(const OneRank&) = delete;
  OneRank& operator=(const OneRank&) = delete;

  const CurrentDevice device{0};
  const DeviceMemory memory{0, kBytes};
};

TEST_F(AbsentRanks, TakePartInCollectivesAndTransfers) {
  const OneRank rank;
  char* const part = rank.memory.data() + kRank * (kBytes / kRanks);
  EXPECT_EQ(Api().ncclAllGather(part, rank.memory.data(), kBytes / kRanks, ncclUint8, rank.comm, rank.stream),
            ncclSuccess);
  EXPECT_EQ(rank.AllReduce(part, part, 8, ncclFloat), ncclSuccess);
  EXPECT_EQ(Api().ncclBroadcast(part, part, 8, ncclFloat, kRanks - 1, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().ncclRecv(part, 8, ncclFloat, kRank - 1, rank.comm, rank.stream), ncclSuccess);
  EXPECT_EQ(Api().ncclSend(part, 8, ncclFloat, kRank + 1, rank.comm, rank.stream), ncclSuccess);
  rank.Synchronize();
  EXPECT_EQ(AsyncError(rank.comm), ncclSuccess);
}

TEST_F(AbsentRanks, HaveNoKnownColours) {
  const OneRank rank;
  ncclComm_t child = nullptr;
  EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, kRank, &child, nullptr), ncclInvalidUsage);
  EXPECT_EQ(Api().ncclCommSplit(rank.comm, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
