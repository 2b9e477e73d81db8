// After a loss in a collective the other ranks can abort, revoke or shrink. None of them hangs.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <latch>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kWaits = setenv("COMMPOOL_EMULATOR", "nccl_timeout_ms=20000", 1);

class LostRanks : public EmulatedNccl {};

TEST_F(LostRanks, EndEveryCollectiveThatTheirPeersAbort) {
  RunRanks(3, [](Rank& rank) {
    if (rank.rank == 2) return rank.Abort();
    const DeviceMemory memory(rank.rank, std::vector<int>(4, 1));
    ASSERT_EQ(Api().ncclReduceScatter(memory.data(), memory.data() + 2048, 1, ncclInt, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank.comm), ncclRemoteError);
    EXPECT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclRemoteError);
    rank.Abort();
    rank.Synchronize();
  });
}

TEST_F(LostRanks, AreLeftOutByAShrinkThatAborts) {
  RunRanks(3, [](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 1) return rank.Abort();
    ASSERT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank.comm), ncclRemoteError);
    int lost[] = {1};
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommShrink(rank.comm, lost, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclRemoteError);
    const auto shrunk = ScopedShrunk(rank.comm, 1, NCCL_SHRINK_ABORT);
    rank.Synchronize();  // the parent's collective has ended
    EXPECT_EQ(SumOver(rank, shrunk.get(), 1), 2);
    rank.Abort();
  });
}

// nccl.h on ncclCommRevoke: operations stop, then communicators can be made from it; it is not finalized.
TEST_F(LostRanks, AreLeftBehindByARevokeAndAShrink) {
  std::atomic<int> revoked = 0;
  RunRanks(3, [&](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 0) return rank.Abort();
    ASSERT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclSuccess);
    ASSERT_EQ(Api().ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(AsyncError(rank.comm), ncclSuccess);
    EXPECT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommFinalize(rank.comm), ncclInvalidUsage);
    ExpectNoWindow(rank, memory.data(), 4096, ncclInvalidUsage);
    ++revoked;
    EXPECT_EQ(SumOver(rank, ScopedShrunk(rank.comm, 0).get(), 1), 2);
  });
  EXPECT_EQ(revoked.load(), 2);
}

// NCCL 2.28.9 on H200s: neither the stream nor the abort ever returns. In a process, because only its end ends that.
[[noreturn]] void ExitInsideAWindowCollective() {
  std::latch registered(1);
  RunRanks(2, [&](Rank& rank, const DeviceMemory& memory) {
    ncclWindow_t window = nullptr;
    Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
    if (rank.rank == 1) {
      registered.wait();
      Api().ncclCommAbort(rank.comm);
      for (;;) pause();
    }
    registered.count_down();
    rank.AllReduce(memory, 1, ncclFloat);
    const ncclResult_t error = WaitForAsyncError(rank.comm);
    const bool local = Api().ncclCommWindowDeregister(rank.comm, window) == ncclSuccess;
    auto aborted = std::async(std::launch::async, [&] { return Api().ncclCommAbort(rank.comm); });
    const bool waits = aborted.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout;
    const bool busy = Api().cuStreamQuery(rank.stream) == CUDA_ERROR_NOT_READY;
    _exit((error == ncclRemoteError ? 0 : 1) | (local ? 0 : 2) | (waits ? 0 : 4) | (busy ? 0 : 8));
  });
  _exit(16);
}

using LostRanksDeathTest = LostRanks;  // runs first, before there are threads

TEST_F(LostRanksDeathTest, AreWaitedForInACollectiveOnWindowsUntilTheProcessEnds) {
  EXPECT_EXIT(ExitInsideAWindowCollective(), ::testing::ExitedWithCode(0), "");
}

TEST_F(LostRanks, EndASplitOfTheirPeers) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank == 1) return rank.Abort();
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclRemoteError);
    EXPECT_EQ(child, nullptr);
    rank.Abort();
  });
}

TEST_F(LostRanks, RanksInDifferentHostCallsAreReported) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 0) {
      ncclComm_t child = nullptr;
      EXPECT_NE(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclSuccess);
    } else {
      ncclWindow_t window = nullptr;
      EXPECT_NE(Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0), ncclSuccess);
    }
    rank.Abort();
  });
  ExpectReport("collective host calls differ between ranks");
}

}  // namespace
}  // namespace commpool::internal::testing
