// Ranks disagree, stay away, die, or use a communicator from two threads. Waits end after half a second here.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kShortWaits = setenv("COMMPOOL_EMULATOR", "nccl_timeout_ms=500", 1);

class Disagreement : public EmulatedNccl {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void Abort(Rank& rank) {
    EXPECT_EQ(Api().ncclCommAbort(rank.comm), ncclSuccess);
    rank.comm = nullptr;
  }

  static ncclResult_t AsyncError(const Rank& rank) {
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(Api().ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    return error;
  }

  static ncclResult_t WaitForAsyncError(const Rank& rank) {
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
      error = AsyncError(rank);
      std::this_thread::yield();
    }
    return error;
  }

  // Runs `launch` on each rank in a process, because it breaks the contexts. Exits with 0 where every rank's stream
  // failed with the expected async error.
  [[noreturn]] static void FailOnEveryRank(int ranks, ncclResult_t expected,
                                           const std::function<void(Rank&, char*)>& launch) {
    std::atomic<int> failed = 0;
    std::vector<std::unique_ptr<DeviceMemory>> memories(static_cast<size_t>(ranks));
    RunRanks(ranks, [&](Rank& rank) {
      std::unique_ptr<DeviceMemory>& memory = memories[static_cast<size_t>(rank.rank)];
      memory = std::make_unique<DeviceMemory>(rank.rank, 4096);
      launch(rank, memory->data());
      if (Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS && AsyncError(rank) == expected) ++failed;
      Abort(rank);
    });
    _exit(failed.load() == ranks ? 0 : 1);
  }

  // Rank 0 broadcasts in a process, and rank 1 does not come. Exits with 0 where rank 0's stream failed.
  enum class LostRank { kStaysAway, kAborts };
  [[noreturn]] static void ExitAfterLonelyBroadcast(LostRank lost) {
    std::promise<void> ended;
    std::shared_future<void> broadcast_ended = ended.get_future().share();
    std::unique_ptr<DeviceMemory> memory;
    bool failed = false;
    RunRanks(2, [&](Rank& rank) {
      if (rank.rank == 1) {
        if (lost == LostRank::kStaysAway) broadcast_ended.wait();
        return Abort(rank);
      }
      memory = std::make_unique<DeviceMemory>(rank.rank, 4096);
      Api().ncclBcast(memory->data(), 1, ncclInt, 0, rank.comm, rank.stream);
      failed = Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS && AsyncError(rank) == ncclRemoteError;
      ended.set_value();
      Abort(rank);
    });
    _exit(failed ? 0 : 1);
  }
};

TEST_F(Disagreement, OverTheCountNamesBothRanks) {
  EXPECT_EXIT(FailOnEveryRank(3, ncclInternalError,
                              [](Rank& rank, char* data) {
                                const size_t count = rank.rank == 2 ? 11 : 10;
                                Api().ncclAllReduce(data, data, count, ncclFloat, ncclSum, rank.comm, rank.stream);
                              }),
              ::testing::ExitedWithCode(0),
              "collectives differ between ranks.*rank 0: AllReduce number 1, count 10.*rank 2: AllReduce number 1, "
              "count 11");
}

TEST_F(Disagreement, OverTheKindOfCollective) {
  EXPECT_EXIT(FailOnEveryRank(2, ncclInternalError,
                              [](Rank& rank, char* data) {
                                if (rank.rank == 0) {
                                  Api().ncclBcast(data, 10, ncclFloat, 0, rank.comm, rank.stream);
                                } else {
                                  Api().ncclAllReduce(data, data, 10, ncclFloat, ncclSum, rank.comm, rank.stream);
                                }
                              }),
              ::testing::ExitedWithCode(0), "collectives differ between ranks.*Broadcast.*AllReduce");
}

// NCCL 2.28.9, src/scheduler/symmetric_sched.cc: each rank looks its own windows up, and nothing makes them agree.
TEST_F(Disagreement, OverOffsetsInAWindow) {
  EXPECT_EXIT(FailOnEveryRank(2, ncclInternalError,
                              [](Rank& rank, char* data) {
                                ncclWindow_t window = nullptr;
                                Api().ncclCommWindowRegister(rank.comm, data, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
                                char* place = data + rank.rank * 512;
                                Api().ncclAllReduce(place, place, 2, ncclFloat, ncclSum, rank.comm, rank.stream);
                              }),
              ::testing::ExitedWithCode(0), "window offsets differ between ranks.*window 1 . 0 .*window 1 . 512");
}

TEST_F(Disagreement, ARankThatStaysAwayFromACollectiveIsNamed) {
  EXPECT_EXIT(ExitAfterLonelyBroadcast(LostRank::kStaysAway), ::testing::ExitedWithCode(0),
              "a rank is missing from a collective call.*rank 0 .*rank 1 did not arrive");
}

TEST_F(Disagreement, ARankThatStaysAwayFromAWindowIsNamed) {
  std::promise<void> failed;
  std::shared_future<void> others_failed = failed.get_future().share();
  RunRanks(3, [&](Rank& rank) {
    if (rank.rank == 1) {
      others_failed.wait();
      return Abort(rank);
    }
    const DeviceMemory memory(rank.rank, 4096);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0), ncclRemoteError);
    EXPECT_EQ(window, nullptr);
    Abort(rank);
    if (rank.rank == 0) failed.set_value();
  });
  EXPECT_NE(TakeReports().find("rank 1 did not arrive"), std::string::npos);
}

TEST_F(Disagreement, ARankThatDoesNotJoinIsNamed) {
  const CurrentDevice current(0);
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 2, id, 0), ncclRemoteError);
  EXPECT_NE(TakeReports().find("communicator not initialised by all ranks"), std::string::npos);
}

TEST_F(Disagreement, AbortIsThePeersAsyncErrorAndTheirAbortFreesTheStream) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank == 1) return Abort(rank);
    const DeviceMemory memory(rank.rank, 4096);
    ASSERT_EQ(Api().ncclBcast(memory.data(), 1, ncclInt, 0, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(WaitForAsyncError(rank), ncclRemoteError);
    Abort(rank);
    EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
  });
}

TEST_F(Disagreement, AStreamThatNobodyFreesFailsInTheEnd) {
  EXPECT_EXIT(ExitAfterLonelyBroadcast(LostRank::kAborts), ::testing::ExitedWithCode(0), "");
}

TEST_F(Disagreement, AbortEndsAWindowRegistrationOfThePeers) {
  RunRanks(2, [](Rank& rank) {
    if (rank.rank == 1) return Abort(rank);
    const DeviceMemory memory(rank.rank, 4096);
    ncclWindow_t window = nullptr;
    EXPECT_EQ(Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0), ncclRemoteError);
    Abort(rank);
  });
}

TEST_F(Disagreement, AbortEndsThisRanksOwnCollectivesQuietly) {
  std::promise<void> aborted;
  std::shared_future<void> peer_aborted = aborted.get_future().share();
  RunRanks(2, [&](Rank& rank) {
    if (rank.rank == 1) {
      peer_aborted.wait();
      return Abort(rank);
    }
    const DeviceMemory memory(rank.rank, 4096);
    ASSERT_EQ(Api().ncclBcast(memory.data(), 1, ncclInt, 0, rank.comm, rank.stream), ncclSuccess);
    Abort(rank);
    EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    aborted.set_value();
  });
}

// NVIDIA/nccl#2184: one thread at a time, registrations included.
TEST_F(Disagreement, TheSecondOfTwoThreadsOnOneCommunicatorIsRefused) {
  std::promise<void> refused;
  std::shared_future<void> one_was_refused = refused.get_future().share();
  std::atomic<int> registered = 0;
  RunRanks(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    const auto register_window = [&] {
      ncclWindow_t window = nullptr;
      const ncclResult_t result = Api().ncclCommWindowRegister(rank.comm, memory.data(), 4096, &window, 0);
      if (result == ncclInvalidUsage) return refused.set_value();
      EXPECT_EQ(result, ncclSuccess);
      EXPECT_EQ(Api().ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
      ++registered;
    };
    // The first of rank 0's threads waits for rank 1, which comes after the other thread was refused.
    if (rank.rank == 1) {
      one_was_refused.wait();
      return register_window();
    }
    std::thread other(register_window);
    register_window();
    other.join();
  });
  EXPECT_EQ(registered.load(), 2);
  EXPECT_NE(TakeReports().find("communicator used by two threads at once"), std::string::npos);
}

}  // namespace
}  // namespace commpool::internal::testing
