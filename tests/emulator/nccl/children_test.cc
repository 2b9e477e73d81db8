// Communicators split from others.
#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Children : public EmulatedNccl {};

TEST_F(Children, HoldTheRanksOfOneColour) {
  RunRanks(4, [](Rank& rank) {
    const auto child = ScopedChild(rank.comm, rank.rank % 2);
    EXPECT_EQ(SizeOf(child.get()), 2);
    EXPECT_EQ(RankIn(child.get()), rank.rank / 2);  // equal keys keep the order
    EXPECT_EQ(SumOver(rank, child.get(), rank.rank), rank.rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(SumOver(rank, rank.comm, 1), 4);  // the parent works on
  });
}

TEST_F(Children, AreOrderedByKey) {
  RunRanks(3, [](Rank& rank) { EXPECT_EQ(RankIn(ScopedChild(rank.comm, 7, -rank.rank).get()), 2 - rank.rank); });
}

TEST_F(Children, WithoutAColourAreNull) {
  RunRanks(3, [](Rank& rank) {
    auto child = reinterpret_cast<ncclComm_t>(&rank);
    const int color = rank.rank == 1 ? NCCL_SPLIT_NOCOLOR : 0;
    ASSERT_EQ(Api().ncclCommSplit(rank.comm, color, 0, &child, nullptr), ncclSuccess);
    if (rank.rank == 1) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    EXPECT_EQ(SizeOf(child), 2);
    EXPECT_EQ(Api().ncclCommDestroy(child), ncclSuccess);
  });
}

TEST_F(Children, OutliveTheirParent) {
  RunRanks(2, [](Rank& rank) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclSuccess);
    rank.Destroy();
    rank.comm = child;
    EXPECT_EQ(SumOver(rank, child, 1), 2);
  });
}

// NCCL 2.28.9, src/init.cc: registrations are a communicator's own.
TEST_F(Children, InheritNoRegistrations) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    const auto handle = ScopedHandle(rank, memory);
    const auto child = ScopedChild(rank.comm);  // leaves nothing behind
    EXPECT_EQ(Api().ncclCommDeregister(child.get(), handle.get()), ncclInvalidUsage);
  });
}

TEST_F(Children, OfSeveralRanksInOneThreadAreGrouped) {
  ncclComm_t parents[2] = {};
  ncclComm_t children[2] = {};
  ASSERT_EQ(Api().ncclCommInitAll(parents, 2, nullptr), ncclSuccess);
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(Api().ncclCommSplit(parents[rank], 0, rank, &children[rank], nullptr), ncclSuccess);
  }
  ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(RankIn(children[rank]), rank);
    EXPECT_EQ(Api().ncclCommDestroy(children[rank]), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDestroy(parents[rank]), ncclSuccess);
  }
}

TEST_F(Children, ShrunkCloseUpInOrder) {
  RunRanks(4, [](Rank& rank) {
    if (rank.rank == 1) return;
    const auto child = ScopedShrunk(rank.comm, 1);
    EXPECT_EQ(SizeOf(child.get()), 3);
    EXPECT_EQ(RankIn(child.get()), rank.rank == 0 ? 0 : rank.rank - 1);
    EXPECT_EQ(SumOver(rank, child.get(), rank.rank), 5);
  });
}

TEST_F(Children, OfRanksThatLeaveOutDifferentOnesAreRefused) {
  RunRanks(4, [](Rank& rank) {
    if (rank.rank >= 2) return;
    int excluded[] = {2, 3};
    ncclComm_t child = nullptr;
    EXPECT_NE(Api().ncclCommShrink(rank.comm, excluded, 1 + rank.rank, &child, nullptr, NCCL_SHRINK_DEFAULT),
              ncclSuccess);
    EXPECT_EQ(child, nullptr);
    rank.Abort();
  });
  TakeReports();  // from either rank
}

TEST_F(Children, RefuseBadArguments) {
  RunRanks(2, [](Rank& rank) {
    ncclComm_t child = nullptr;
    int self[] = {rank.rank};
    int unknown[] = {2};
    ncclConfig_t config = {};
    const auto shrink = [&](int* list, int count, int flags = NCCL_SHRINK_DEFAULT) {
      return Api().ncclCommShrink(rank.comm, list, count, &child, nullptr, flags);
    };
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, -2, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, &child, &config), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_EQ(shrink(self, 1), ncclInvalidArgument);
    EXPECT_EQ(shrink(unknown, 1), ncclInvalidArgument);
    EXPECT_EQ(shrink(nullptr, 1), ncclInvalidArgument);
    EXPECT_EQ(shrink(unknown, 0), ncclInvalidArgument);
    EXPECT_EQ(shrink(unknown, 1, 64), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommRevoke(rank.comm, 1), ncclInvalidArgument);
    EXPECT_EQ(child, nullptr);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
