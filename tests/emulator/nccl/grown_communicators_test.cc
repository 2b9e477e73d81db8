// ncclCommGrow, which begins with 2.29.2: old ranks and new ones in one communicator.
#include <cstdlib>
#include <future>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7", 1);

class GrownCommunicators : public EmulatedNccl {};

void ExpectMember(ncclComm_t comm, int rank, int ranks) {
  int value = -1;
  EXPECT_EQ(Api().ncclCommUserRank(comm, &value), ncclSuccess);
  EXPECT_EQ(value, rank);
  EXPECT_EQ(Api().ncclCommCount(comm, &value), ncclSuccess);
  EXPECT_EQ(value, ranks);
}

TEST_F(GrownCommunicators, KeepOldRanksAndTakeNewOnes) {
  std::promise<ncclUniqueId> made;
  std::shared_future<ncclUniqueId> id = made.get_future().share();
  std::thread joins([&] {
    const CurrentDevice current(2);
    ncclComm_t comm = nullptr;
    const ncclUniqueId received = id.get();
    ASSERT_EQ(Api().ncclCommGrow(nullptr, 3, &received, 2, &comm, nullptr), ncclSuccess);
    ExpectMember(comm, 2, 3);
    EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
  });
  RunRanks(2, [&](Rank& rank) {
    ncclUniqueId own;
    if (rank.rank == 1) {
      ASSERT_EQ(Api().ncclCommGetUniqueId(rank.comm, &own), ncclSuccess);
      made.set_value(own);
    }
    ncclComm_t grown = nullptr;
    ASSERT_EQ(Api().ncclCommGrow(rank.comm, 3, rank.rank == 1 ? &own : nullptr, -1, &grown, nullptr), ncclSuccess);
    ExpectMember(grown, rank.rank, 3);
    EXPECT_EQ(Api().ncclCommDestroy(grown), ncclSuccess);
  });
  joins.join();
}

TEST_F(GrownCommunicators, NeedOneIdAndALargerNumber) {
  RunRanks(2, [](Rank& rank) {
    ncclComm_t grown = nullptr;
    EXPECT_EQ(Api().ncclCommGrow(rank.comm, 2, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommGrow(rank.comm, 3, nullptr, 0, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommGrow(rank.comm, 3, nullptr, -1, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommGrow(rank.comm, 3, nullptr, -1, &grown, nullptr), ncclInvalidArgument);  // nobody's id
    EXPECT_EQ(Api().ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(grown, nullptr);
    EXPECT_EQ(Api().ncclCommGetUniqueId(rank.comm, nullptr), ncclInvalidArgument);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
