// After a loss in a collective the other ranks can abort, revoke or shrink. None of them hangs.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kWaits = setenv("COMMPOOL_EMULATOR", "nccl_timeout_ms=20000", 1);

class LostRanks : public EmulatedNccl {
 protected:
  static void Abort(Rank& rank) {
    EXPECT_EQ(Api().ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  }

  static ncclResult_t WaitForAsyncError(ncclComm_t comm) {
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
      EXPECT_EQ(Api().ncclCommGetAsyncError(comm, &error), ncclSuccess);
      std::this_thread::yield();
    }
    return error;
  }

  static void ExpectSum(const Rank& rank, ncclComm_t comm, int expected) {
    const DeviceMemory memory(rank.rank, 4096);
    Upload(memory.data(), std::vector<int>{1});
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, comm, rank.stream), ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(Download<int>(memory.data(), 1)[0], expected);
  }
};

TEST_F(LostRanks, EndEveryCollectiveThatTheirPeersAbort) {
  RunRanks(3, [](Rank& rank) {
    if (rank.rank == 2) return Abort(rank);
    const DeviceMemory memory(rank.rank, 4096);
    Upload(memory.data(), std::vector<int>(4, 1));
    ASSERT_EQ(Api().ncclReduceScatter(memory.data(), memory.data() + 2048, 1, ncclInt, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank.comm), ncclRemoteError);
    EXPECT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, rank.comm, rank.stream),
              ncclRemoteError);
    Abort(rank);
    rank.Synchronize();
  });
}

TEST_F(LostRanks, AreLeftOutByAShrinkThatAborts) {
  RunRanks(3, [](Rank& rank) {
    if (rank.rank == 1) return Abort(rank);
    const DeviceMemory memory(rank.rank, 4096);
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank.comm), ncclRemoteError);
    int lost[] = {1};
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommShrink(rank.comm, lost, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclRemoteError);
    ASSERT_EQ(Api().ncclCommShrink(rank.comm, lost, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess);
    rank.Synchronize();  // the parent's collective has ended
    ExpectSum(rank, child, 2);
    Abort(rank);
    EXPECT_EQ(Api().ncclCommDestroy(child), ncclSuccess);
  });
}

// nccl.h on ncclCommRevoke: operations stop, then communicators can be made from it; it is not finalized.
TEST_F(LostRanks, AreLeftBehindByARevokeAndAShrink) {
  std::atomic<int> revoked = 0;
  RunRanks(3, [&](Rank& rank) {
    if (rank.rank == 0) return Abort(rank);
    const DeviceMemory memory(rank.rank, 4096);
    char* const data = memory.data();
    const auto reduce = [&] { return Api().ncclAllReduce(data, data, 1, ncclInt, ncclSum, rank.comm, rank.stream); };
    ASSERT_EQ(reduce(), ncclSuccess);
    ASSERT_EQ(Api().ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
    rank.Synchronize();
    ncclResult_t error = ncclInProgress;
    EXPECT_EQ(Api().ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
    EXPECT_EQ(reduce(), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclCommFinalize(rank.comm), ncclInvalidUsage);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, data, 4096, &window, 0), ncclInvalidUsage);
    ++revoked;
    int lost[] = {0};
    ncclComm_t child = nullptr;
    ASSERT_EQ(Api().ncclCommShrink(rank.comm, lost, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
    ExpectSum(rank, child, 2);
    EXPECT_EQ(Api().ncclCommDestroy(child), ncclSuccess);
  });
  EXPECT_EQ(revoked.load(), 2);
}

// NCCL 2.28.9 on H200s: neither the stream nor the abort ever returns. In a process, because only its end ends that.
[[noreturn]] void ExitInsideAWindowCollective() {
  std::promise<void> registered;
  RunRanks(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    ncclWindow_t window = nullptr;
    Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
    if (rank.rank == 1) {
      registered.get_future().wait();
      Api().ncclCommAbort(rank.comm);
      for (;;) pause();
    }
    registered.set_value();
    Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclFloat, ncclSum, rank.comm, rank.stream);
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) Api().ncclCommGetAsyncError(rank.comm, &error);
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
    if (rank.rank == 1) return Abort(rank);
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclRemoteError);
    EXPECT_EQ(child, nullptr);
    Abort(rank);
  });
}

TEST_F(LostRanks, RanksInDifferentHostCallsAreReported) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    if (rank.rank == 0) {
      ncclComm_t child = nullptr;
      EXPECT_NE(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclSuccess);
    } else {
      ncclWindow_t window = nullptr;
      EXPECT_NE(Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0), ncclSuccess);
    }
    Abort(rank);
  });
  EXPECT_NE(TakeReports().find("collective host calls differ between ranks"), std::string::npos);
}

}  // namespace
}  // namespace commpool::internal::testing
