// Communicators whose calls return ncclInProgress: the program asks them until they have ended.
#include <array>
#include <cstdlib>
#include <future>
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
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(Api().ncclCommGetAsyncError(comm, &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  }

  static bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

  struct Member {
    int rank;
    ncclComm_t comm;
    CUstream stream;
  };
  // Ranks as threads, each with a nonblocking communicator that is ready; the body ends it.
  static void Run(int ranks, const std::function<void(Member&)>& body) {
    ncclUniqueId id;
    ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const CurrentDevice current(rank);
        ncclConfig_t config = Config(0);
        Member member{rank, nullptr, nullptr};
        ASSERT_EQ(Api().ncclCommInitRankConfig(&member.comm, ranks, id, rank, &config), ncclInProgress);
        ASSERT_NE(member.comm, nullptr);
        ASSERT_EQ(Poll(member.comm), ncclSuccess);
        ASSERT_EQ(Api().cuStreamCreate(&member.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        body(member);
        EXPECT_EQ(Api().cuStreamDestroy(member.stream), CUDA_SUCCESS);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static void End(Member& member) {
    EXPECT_EQ(Api().ncclCommFinalize(member.comm), ncclInProgress);
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDestroy(member.comm), ncclSuccess);
  }
};

TEST_F(Nonblocking, ACommunicatorIsNotUsedBeforeItIsReady) {
  const CurrentDevice current(0);
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = Config(0);
  ncclComm_t first = nullptr;
  ASSERT_EQ(Api().ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  int count = 0;
  EXPECT_EQ(Api().ncclCommCount(first, &count), ncclInvalidArgument);  // rank 1 has not come
  EXPECT_EQ(Api().ncclCommFinalize(first), ncclInvalidArgument);
  EXPECT_NE(std::string(Api().ncclGetLastError(nullptr)).find("before the previous operation"), std::string::npos);
  const CurrentDevice other(1);
  ncclComm_t second = nullptr;
  ASSERT_EQ(Api().ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclInProgress);
  EXPECT_EQ(Poll(first), ncclSuccess);
  EXPECT_EQ(Poll(second), ncclSuccess);
  EXPECT_EQ(Api().ncclCommCount(first, &count), ncclSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(Api().ncclCommDestroy(first), ncclSuccess);
  EXPECT_EQ(Api().ncclCommDestroy(second), ncclSuccess);
}

TEST_F(Nonblocking, TheFirstCollectiveMakesConnectionsInTheBackground) {
  Run(2, [](Member& member) {
    const DeviceMemory memory(member.rank, 4096);
    Upload(memory.data(), std::vector<int>{member.rank + 1});
    const auto reduce = [&] {
      return Api().ncclAllReduce(memory.data(), memory.data(), 1, ncclInt, ncclSum, member.comm, member.stream);
    };
    EXPECT_EQ(reduce(), ncclInProgress);
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    EXPECT_EQ(reduce(), ncclSuccess);
    EXPECT_EQ(Api().cuStreamSynchronize(member.stream), CUDA_SUCCESS);
    EXPECT_EQ(Download<int>(memory.data(), 1)[0], 6);
    End(member);
  });
}

TEST_F(Nonblocking, AWindowIsThereOnceTheCommunicatorIsReady) {
  Run(2, [](Member& member) {
    const DeviceMemory memory(member.rank, 2 << 20);
    ncclWindow_t window = nullptr;
    EXPECT_TRUE(Accepted(
        Api().ncclCommWindowRegister(member.comm, memory.data(), memory.bytes(), &window, NCCL_WIN_COLL_SYMMETRIC)));
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(Api().ncclCommWindowDeregister(member.comm, window), ncclSuccess);
    End(member);
  });
}

TEST_F(Nonblocking, ASplitInheritsItAndBothArePolled) {
  Run(2, [](Member& member) {
    ncclComm_t child = nullptr;
    EXPECT_EQ(Api().ncclCommSplit(member.comm, 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_NE(child, nullptr);
    EXPECT_EQ(Poll(child), ncclSuccess);
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    int count = 0;
    EXPECT_EQ(Api().ncclCommCount(child, &count), ncclSuccess);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(Api().ncclCommDestroy(child), ncclSuccess);
    End(member);
  });
}

TEST_F(Nonblocking, AGroupAnswersInProgressAtItsEnd) {
  constexpr int kRanks = 2;
  std::array<ncclComm_t, kRanks> comms = {};
  std::vector<std::unique_ptr<CurrentDevice>> devices;
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
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
  std::promise<void> aborted;
  std::shared_future<void> peer_aborted = aborted.get_future().share();
  Run(2, [&](Member& member) {
    const DeviceMemory memory(member.rank, 2 << 20);
    if (member.rank == 0) {
      ncclWindow_t window = nullptr;
      EXPECT_TRUE(Accepted(Api().ncclCommWindowRegister(member.comm, memory.data(), memory.bytes(), &window, 0)));
      EXPECT_EQ(Api().ncclCommAbort(member.comm), ncclSuccess);  // rank 1 never registers
      EXPECT_EQ(window, nullptr);
      return aborted.set_value();
    }
    peer_aborted.wait();
    EXPECT_EQ(Api().ncclCommAbort(member.comm), ncclSuccess);
  });
}

// NCCL 2.28.9 and 2.30.7, src/dev_runtime.cc: the call that ends a window asks neither whether the communicator is
// ready nor whether it has failed.
TEST_F(Nonblocking, AWindowEndsBesideACallThatNeverFinishesAndAfterOneThatFailed) {
  std::promise<void> seen;
  Run(2, [&](Member& member) {
    const DeviceMemory memory(member.rank, 2 << 20);
    const DeviceMemory further(member.rank, 2 << 20);
    const DeviceMemory third(member.rank, 2 << 20);
    std::array<ncclWindow_t, 3> windows = {};
    const auto add = [&](const DeviceMemory& of, ncclWindow_t& window) {
      return Accepted(Api().ncclCommWindowRegister(member.comm, of.data(), of.bytes(), &window, 0));
    };
    EXPECT_TRUE(add(memory, windows[0]));
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    EXPECT_TRUE(add(further, windows[1]));
    EXPECT_EQ(Poll(member.comm), ncclSuccess);
    if (member.rank == 1) {
      seen.get_future().wait();
      for (const size_t window : {size_t{0}, size_t{1}}) {
        EXPECT_EQ(Api().ncclCommWindowDeregister(member.comm, windows[window]), ncclSuccess);
      }
      EXPECT_EQ(Api().ncclCommAbort(member.comm), ncclSuccess);
      return;
    }
    EXPECT_TRUE(add(third, windows[2]));  // rank 1 never does
    EXPECT_EQ(Api().ncclCommWindowDeregister(member.comm, windows[0]), ncclSuccess);
    seen.set_value();
    EXPECT_EQ(Poll(member.comm), ncclRemoteError);
    EXPECT_EQ(Api().ncclCommWindowDeregister(member.comm, windows[1]), ncclSuccess);
    EXPECT_EQ(Api().ncclCommAbort(member.comm), ncclSuccess);
  });
}

TEST_F(Nonblocking, ABadConfigurationIsRefused) {
  const CurrentDevice current(0);
  ncclUniqueId id;
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = Config(2);
  EXPECT_EQ(Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config = Config(1);
  ASSERT_EQ(Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace commpool::internal::testing
