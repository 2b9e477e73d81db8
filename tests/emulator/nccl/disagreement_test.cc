// Ranks disagree, stay away, die, or use a communicator from two threads. Waits end after half a second here.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kShortWaits = setenv("COMMPOOL_EMULATOR", "nccl_timeout_ms=500", 1);

class Disagreement : public EmulatedNccl {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Runs `launch` on each rank in a process, because it breaks the contexts. Exits with 0 where every rank's stream
  // failed with an internal error.
  [[noreturn]] static void FailOnEveryRank(int ranks, const std::function<void(Rank&, char*)>& launch) {
    std::atomic<int> failed = 0;
    RunRanks(ranks, [&](Rank& rank) {
      const auto* const memory = new DeviceMemory(rank.rank, 4096);  // outlives the process
      launch(rank, memory->data());
      if (Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS && AsyncError(rank.comm) == ncclInternalError)
        ++failed;
      rank.Abort();
    });
    _exit(failed.load() == ranks ? 0 : 1);
  }

  // Rank 0 broadcasts in a process, and rank 1 does not come. Exits with 0 where rank 0's stream failed.
  enum class LostRank { kStaysAway, kAborts };
  [[noreturn]] static void ExitAfterLonelyBroadcast(LostRank lost) {
    std::latch ended(1);
    bool failed = false;
    RunRanks(2, [&](Rank& rank) {
      if (rank.rank == 1) {
        if (lost == LostRank::kStaysAway) ended.wait();
        return rank.Abort();
      }
      const auto* const memory = new DeviceMemory(rank.rank, 4096);  // outlives the process
      Api().ncclBcast(memory->data(), 1, ncclInt, 0, rank.comm, rank.stream);
      failed = Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS && AsyncError(rank.comm) == ncclRemoteError;
      ended.count_down();
      rank.Abort();
    });
    _exit(failed ? 0 : 1);
  }
};

TEST_F(Disagreement, OverTheCountNamesBothRanks) {
  const auto launch = [](Rank& rank, char* data) {
    const size_t count = rank.rank == 2 ? 11 : 10;
    rank.AllReduce(data, data, count, ncclFloat);
  };
  EXPECT_EXIT(FailOnEveryRank(3, launch), ::testing::ExitedWithCode(0),
              "collectives differ between ranks.*rank 0: AllReduce number 1, count 10.*rank 2: AllReduce number 1, "
              "count 11");
}

TEST_F(Disagreement, OverTheKindOfCollective) {
  const auto launch = [](Rank& rank, char* data) {
    if (rank.rank == 0) Api().ncclBcast(data, 10, ncclFloat, 0, rank.comm, rank.stream);
    if (rank.rank == 1) rank.AllReduce(data, data, 10, ncclFloat);
  };
  EXPECT_EXIT(FailOnEveryRank(2, launch), ::testing::ExitedWithCode(0),
              "collectives differ between ranks.*Broadcast.*AllReduce");
}

// NCCL 2.28.9, src/scheduler/symmetric_sched.cc: each rank looks its own windows up, and nothing makes them agree.
TEST_F(Disagreement, OverOffsetsInAWindow) {
  const auto launch = [](Rank& rank, char* data) {
    RegisterWindow(rank, data, 4096, NCCL_WIN_COLL_SYMMETRIC);
    char* place = data + rank.rank * 512;
    rank.AllReduce(place, place, 2, ncclFloat);
  };
  EXPECT_EXIT(FailOnEveryRank(2, launch), ::testing::ExitedWithCode(0),
              "window offsets differ between ranks.*window 1 . 0 .*window 1 . 512");
}

TEST_F(Disagreement, ARankThatStaysAwayFromACollectiveIsNamed) {
  EXPECT_EXIT(ExitAfterLonelyBroadcast(LostRank::kStaysAway), ::testing::ExitedWithCode(0),
              "a rank is missing from a collective call.*rank 0 .*rank 1 did not arrive");
}

TEST_F(Disagreement, ARankThatStaysAwayFromAWindowIsNamed) {
  std::latch failed(1);
  RunRanks(3, [&](Rank& rank) {
    if (rank.rank == 1) {
      failed.wait();
      return rank.Abort();
    }
    const DeviceMemory memory(rank.rank, 4096);
    ExpectNoWindow(rank, memory.data(), 4096, ncclRemoteError);
    rank.Abort();
    if (rank.rank == 0) failed.count_down();
  });
  ExpectReport("rank 1 did not arrive");
}

TEST_F(Disagreement, ARankThatDoesNotJoinIsNamed) {
  const CurrentDevice current(0);
  const ncclUniqueId id = NewId();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 2, id, 0), ncclRemoteError);
  ExpectReport("communicator not initialised by all ranks");
}

TEST_F(Disagreement, AbortIsThePeersAsyncErrorAndTheirAbortFreesTheStream) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 1) return rank.Abort();
    ASSERT_EQ(Api().ncclBcast(memory.data(), 1, ncclInt, 0, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank.comm), ncclRemoteError);
    rank.Abort();
    EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
  });
}

TEST_F(Disagreement, AStreamThatNobodyFreesFailsInTheEnd) {
  EXPECT_EXIT(ExitAfterLonelyBroadcast(LostRank::kAborts), ::testing::ExitedWithCode(0), "");
}

TEST_F(Disagreement, AbortEndsAWindowRegistrationOfThePeers) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    if (rank.rank == 1) return rank.Abort();
    ExpectNoWindow(rank, memory.data(), 4096, ncclRemoteError);
    rank.Abort();
  });
}

TEST_F(Disagreement, AbortEndsThisRanksOwnCollectivesQuietly) {
  std::latch aborted(1);
  RunRanks(2, [&](Rank& rank) {
    if (rank.rank == 1) {
      aborted.wait();
      return rank.Abort();
    }
    const DeviceMemory memory(rank.rank, 4096);
    ASSERT_EQ(Api().ncclBcast(memory.data(), 1, ncclInt, 0, rank.comm, rank.stream), ncclSuccess);
    rank.Abort();
    EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    aborted.count_down();
  });
}

// NVIDIA/nccl#2184: one thread at a time, registrations included.
TEST_F(Disagreement, TheSecondOfTwoThreadsOnOneCommunicatorIsRefused) {
  std::latch refused(1);
  std::atomic<int> registered = 0;
  RunRanks(2, [&](Rank& rank, const DeviceMemory& memory) {
    const auto register_window = [&] {
      ncclWindow_t window = nullptr;
      const ncclResult_t result = Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0);
      if (result == ncclInvalidUsage) return refused.count_down();
      EXPECT_EQ(result, ncclSuccess);
      EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
      ++registered;
    };
    // The first of rank 0's threads waits for rank 1, which comes after the other thread was refused.
    if (rank.rank == 1) {
      refused.wait();
      return register_window();
    }
    std::thread other(register_window);
    register_window();
    other.join();
  });
  EXPECT_EQ(registered.load(), 2);
  ExpectReport("communicator used by two threads at once");
}

}  // namespace
}  // namespace commpool::internal::testing
