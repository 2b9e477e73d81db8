// Communicators made from others, and nonblocking communicators.
#include <cuda.h>
#include <nccl.h>

#include <thread>

#include "tests/driver/conformance/nccl_fixture.h"

namespace commpool::internal::testing {
namespace {

class NcclCommunicator : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    if (IsSkipped()) return;
    COMMPOOL_REQUIRE_DEVICES(2);
    if (nccl().ncclCommSplit == nullptr) GTEST_SKIP() << "needs NCCL 2.18";
    Connect(2);
  }

  // A child of each rank's communicator, made by `split`.
  template <typename Split>
  std::vector<ncclComm_t> Children(const Split& split) {
    std::vector<ncclComm_t> children(ranks().size());
    Grouped([&](Rank& rank) { EXPECT_EQ(split(rank, &OfRank(children, rank)), ncclSuccess); });
    return children;
  }

  void ExpectPlace(ncclComm_t communicator, int expected_rank, int expected_size) {
    int value = -1;
    EXPECT_EQ(nccl().ncclCommUserRank(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_rank);
    EXPECT_EQ(nccl().ncclCommCount(communicator, &value), ncclSuccess);
    EXPECT_EQ(value, expected_size);
  }

  ncclResult_t Poll(ncclComm_t communicator) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(nccl().ncclCommGetAsyncError(communicator, &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  }
};

TEST_F(NcclCommunicator, ASplitOrdersByKey) {
  const std::vector<ncclComm_t> children = Children([&](Rank& rank, ncclComm_t* child) {
    return nccl().ncclCommSplit(rank.communicator, 0, -rank.rank, child, nullptr);
  });
  ForEachRank([&](Rank& rank) {
    ExpectPlace(OfRank(children, rank), 1 - rank.rank, 2);
    EXPECT_EQ(nccl().ncclCommDestroy(OfRank(children, rank)), ncclSuccess);
  });
}

TEST_F(NcclCommunicator, ASplitWithoutAColourIsNull) {
  const std::vector<ncclComm_t> children = Children([&](Rank& rank, ncclComm_t* child) {
    const int color = rank.rank == 1 ? NCCL_SPLIT_NOCOLOR : 3;
    return nccl().ncclCommSplit(rank.communicator, color, 0, child, nullptr);
  });
  EXPECT_EQ(children[1], nullptr);
  ExpectPlace(children[0], 0, 1);
  ForEachRank([&](Rank& rank) { EXPECT_EQ(nccl().ncclCommDestroy(OfRank(children, rank)), ncclSuccess); });
}

TEST_F(NcclCommunicator, AShrinkLeavesRanksOut) {
  if (nccl().ncclCommShrink == nullptr) GTEST_SKIP() << "needs NCCL 2.27";
  ForEachRank([&](Rank& rank) {
    if (rank.rank == 1) return;
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_EQ(nccl().ncclCommShrink(rank.communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
    ExpectPlace(child, 0, 1);
    EXPECT_EQ(nccl().ncclCommDestroy(child), ncclSuccess);
    int self[] = {0};
    EXPECT_NE(nccl().ncclCommShrink(rank.communicator, self, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
  });
}

TEST_F(NcclCommunicator, ANonblockingOneIsPolled) {
  ncclUniqueId id;
  ASSERT_EQ(nccl().ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> communicators(ranks().size());
  ASSERT_EQ(nccl().ncclGroupStart(), ncclSuccess);
  ForEachRank([&](Rank& rank) {
    const ncclResult_t result = nccl().ncclCommInitRankConfig(&OfRank(communicators, rank), 2, id, rank.rank, &config);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
  });
  EXPECT_EQ(nccl().ncclGroupEnd(), ncclInProgress);
  for (const ncclComm_t communicator : communicators) EXPECT_EQ(Poll(communicator), ncclSuccess);
  ForEachRank([&](Rank& rank) {
    ExpectPlace(OfRank(communicators, rank), rank.rank, 2);
    EXPECT_EQ(nccl().ncclCommAbort(OfRank(communicators, rank)), ncclSuccess);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
