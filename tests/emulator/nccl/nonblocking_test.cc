// Communicators whose calls return ncclInProgress: the program asks them until they have ended.
#include <array>
#include <latch>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Nonblocking : public EmulatedNccl {
 protected:
  static ncclConfig_t Config(int blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    return config;
  }

  static ncclResult_t Poll(ncclComm_t comm) {
    for (;;) {
      const ncclResult_t state = AsyncError(comm);
      if (state != ncclInProgress) return state;
      std::this_thread::yield();
    }
  }

  static bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

  // Each rank has a nonblocking communicator that is ready.
  static void Run(int ranks, const std::function<void(Rank&)>& body) {
    RunRanks(ranks, body, [](ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
      ncclConfig_t config = Config(0);
      ASSERT_EQ(Api().ncclCommInitRankConfig(comm, size, id, rank, &config), ncclInProgress);
      ASSERT_NE(*comm, nullptr);
      ASSERT_EQ(Poll(*comm), ncclSuccess);
    });
  }

  static void End(Rank& rank) {
    EXPECT_EQ(Api().ncclCommFinalize(rank.comm), ncclInProgress);
    EXPECT_EQ(Poll(rank.comm), ncclSuccess);
    rank.Destroy();
  }
};

TEST_F(Nonblocking, ACommunicatorIsNotUsedBeforeItIsReady) {
  const CurrentDevice current(0);
  const ncclUniqueId id = NewId();
  ncclConfig_t config = Config(0);
  ncclComm_t first = nullptr;
  ASSERT_EQ(Api().ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  int count = 0;
  EXPECT_EQ(Api().ncclCommCount(first, &count), ncclInvalidArgument);  // rank 1 has not come
  EXPECT_EQ(Api().ncclCommFinalize(first), ncclInvalidArgument);
  EXPECT_NE(LastError().find("before the previous operation"), std::string::npos);
  const CurrentDevice other(1);
  ncclComm_t second = nullptr;
  ASSERT_EQ(Api().ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(Poll(first), ncclSuccess);
  EXPECT_EQ(Poll(second), ncclSuccess);
  EXPECT_EQ(SizeOf(first), 2);
  EXPECT_EQ(Api().ncclCommDestroy(first), ncclSuccess);
  EXPECT_EQ(Api().ncclCommDestroy(second), ncclSuccess);
}

TEST_F(Nonblocking, TheFirstCollectiveMakesConnectionsInTheBackground) {
  Run(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank + 1});
    EXPECT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclInProgress);
    EXPECT_EQ(Poll(rank.comm), ncclSuccess);
    EXPECT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(memory.data(), 1)[0], 6);
    End(rank);
  });
}

TEST_F(Nonblocking, AWindowIsThereOnceTheCommunicatorIsReady) {
  Run(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 << 20);
    ncclWindow_t window = nullptr;
    EXPECT_TRUE(Accepted(
        Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, NCCL_WIN_COLL_SYMMETRIC)));
    EXPECT_EQ(Poll(rank.comm), ncclSuccess);
    EXPECT_NE(window, nullptr);
    EndWindow(rank, window);
    End(rank);
  });
}

TEST_F(Nonblocking, ASplitInheritsItAndBothArePolled) {
  Run(2, [](Rank& rank) {
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommSplit(rank.comm, 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(Poll(child), ncclSuccess);
    EXPECT_EQ(Poll(rank.comm), ncclSuccess);
    EXPECT_EQ(SizeOf(child), 2);
    EXPECT_EQ(Api().ncclCommDestroy(child), ncclSuccess);
    End(rank);
  });
}

TEST_F(Nonblocking, AGroupAnswersInProgressAtItsEnd) {
  constexpr int kRanks = 2;
  std::array<ncclComm_t, kRanks> comms = {};
  std::vector<std::unique_ptr<CurrentDevice>> devices;
  const ncclUniqueId id = NewId();
  ncclConfig_t config = Config(0);
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < kRanks; ++rank) {
    devices.push_back(std::make_unique<CurrentDevice>(rank));
    ASSERT_TRUE(Accepted(Api().ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], kRanks, id, rank, &config)));
  }
  EXPECT_EQ(Api().ncclGroupEnd(), ncclInProgress);
  for (const ncclComm_t comm : comms) EXPECT_EQ(Poll(comm), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(Nonblocking, AnAbortEndsWhatIsInProgress) {
  std::latch aborted(1);
  Run(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 << 20);
    if (rank.rank == 0) {
      ncclWindow_t window = nullptr;
      EXPECT_TRUE(Accepted(Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &window, 0)));
      rank.Abort();  // rank 1 never registers
      EXPECT_EQ(window, nullptr);
      return aborted.count_down();
    }
    aborted.wait();
    rank.Abort();
  });
}

// NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc: the call that ends a window asks neither whether the communicator is
// ready nor whether it has failed.
TEST_F(Nonblocking, AWindowEndsBesideACallThatNeverFinishesAndAfterOneThatFailed) {
  std::latch seen(1);
  Run(2, [&](Rank& rank) {
    const std::array<DeviceMemory, 3> memories = {{{rank.rank, 1}, {rank.rank, 1}, {rank.rank, 1}}};
    std::array<ncclWindow_t, 3> windows = {};
    const auto add = [&](size_t index) {
      const DeviceMemory& memory = memories[index];
      return Accepted(Api().ncclCommWindowRegister(rank.comm, memory.data(), memory.bytes(), &windows[index], 0));
    };
    for (const size_t index : {size_t{0}, size_t{1}}) {
      EXPECT_TRUE(add(index));
      EXPECT_EQ(Poll(rank.comm), ncclSuccess);
    }
    if (rank.rank == 1) {
      seen.wait();
      EndWindow(rank, windows[0]);
      EndWindow(rank, windows[1]);
      return rank.Abort();
    }
    EXPECT_TRUE(add(2));  // rank 1 never does
    EndWindow(rank, windows[0]);
    seen.count_down();
    EXPECT_EQ(Poll(rank.comm), ncclRemoteError);
    EndWindow(rank, windows[1]);
    rank.Abort();
  });
}

TEST_F(Nonblocking, ABadConfigurationIsRefused) {
  const CurrentDevice current(0);
  const ncclUniqueId id = NewId();
  ncclComm_t comm = nullptr;
  ncclConfig_t config = Config(2);
  EXPECT_EQ(Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config = Config(1);
  ASSERT_EQ(Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
