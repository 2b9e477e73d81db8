// Sends and receives, alone and grouped, and the collectives made of them.
#include <unistd.h>

#include <cstdlib>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kShortWaits = setenv("COMMPOOL_EMULATOR", "nccl_timeout_ms=2000", 1);

constexpr size_t kLarge = 400'000;  // elements: more than a connection buffers

class Transfers : public EmulatedNccl {};

std::vector<int> Numbers(int first, size_t count) {
  std::vector<int> numbers(count);
  for (size_t index = 0; index < count; ++index) numbers[index] = first + static_cast<int>(index % 100);
  return numbers;
}

void Send(const Rank& rank, const void* data, size_t count, int peer, ncclResult_t expected = ncclSuccess,
          const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace caller(file, line, "Send");
  EXPECT_EQ(Api().ncclSend(data, count, ncclInt, peer, rank.comm, rank.stream), expected);
}

void Receive(const Rank& rank, void* data, size_t count, int peer, ncclResult_t expected = ncclSuccess,
             const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const ::testing::ScopedTrace caller(file, line, "Receive");
  EXPECT_EQ(Api().ncclRecv(data, count, ncclInt, peer, rank.comm, rank.stream), expected);
}

TEST_F(Transfers, BringElementsFromOneRankToAnother) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, Numbers(1000 * rank.rank, kLarge));
    if (rank.rank == 1) Send(rank, memory.data(), kLarge, 2);
    if (rank.rank == 2) Receive(rank, memory.data(), kLarge, 1);
    EXPECT_EQ(rank.Result<int>(memory.data(), kLarge), Numbers(rank.rank == 0 ? 0 : 1000, kLarge));
  });
}

TEST_F(Transfers, OfOneGroupRunSideBySide) {
  RunRanks(4, [](Rank& rank) {
    const DeviceMemory send(rank.rank, Numbers(1000 * rank.rank, kLarge));
    const DeviceMemory receive(rank.rank, kLarge * sizeof(int));
    const int previous = (rank.rank + 3) % 4;
    ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
    Send(rank, send.data(), kLarge, (rank.rank + 1) % 4);
    Receive(rank, receive.data(), kLarge, previous);
    ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(receive.data(), kLarge), Numbers(1000 * previous, kLarge));
  });
}

// A rank's transfers with one peer do not wait for its transfers with another.
TEST_F(Transfers, OfOneGroupDoNotWaitForEachOther) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 * kLarge * sizeof(int));
    char* const second = memory.data() + kLarge * sizeof(int);
    Upload(memory.data(), Numbers(rank.rank, kLarge));
    if (rank.rank == 0) {
      ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
      Send(rank, memory.data(), kLarge, 1);
      Send(rank, memory.data(), kLarge, 2);
      ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
    } else if (rank.rank == 1) {
      Receive(rank, second, kLarge, 2);
      Receive(rank, second, kLarge, 0);
    } else {
      Receive(rank, second, kLarge, 0);
      Send(rank, memory.data(), kLarge, 1);
    }
    if (rank.rank == 0) return rank.Synchronize();
    EXPECT_EQ(rank.Result<int>(second, kLarge), Numbers(0, kLarge));
  });
}

TEST_F(Transfers, BetweenSomeRanksLeaveTheOthersCollectivesInStep) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank});
    if (rank.rank == 0) Send(rank, memory.data(), 1, 1);
    if (rank.rank == 1) Receive(rank, memory.data(), 1, 0);
    ASSERT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(memory.data(), 1), std::vector<int>{2});
  });
}

TEST_F(Transfers, GroupedWithCollectivesComeAfterThem) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank + 1});
    char* const other = memory.data() + 1024;
    const auto reduce = [&] { ASSERT_EQ(rank.AllReduce(memory, 1, ncclInt), ncclSuccess); };
    ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
    if (rank.rank == 0) reduce();
    Send(rank, memory.data(), 1, 1 - rank.rank);
    Receive(rank, other, 1, 1 - rank.rank);
    if (rank.rank == 1) reduce();
    ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(other, 1), std::vector<int>{3});
  });
}

TEST_F(Transfers, ToOneselfNeedBothEndsInOneGroup) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, Numbers(7, 10));
    Send(rank, memory.data(), 10, 0, ncclInvalidUsage);
    ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
    Receive(rank, memory.data() + 1024, 10, 0);
    Send(rank, memory.data(), 10, 0);
    ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(memory.data() + 1024, 10), Numbers(7, 10));
  });
}

TEST_F(Transfers, OfNothingDoNothing) {
  RunRanks(2, [](Rank& rank) { Send(rank, nullptr, 0, 1 - rank.rank); });
}

TEST_F(Transfers, AllToAllSwapsBlocks) {
  constexpr size_t kCount = 1000;
  RunRanks(3, [](Rank& rank) {
    std::vector<int> sent, expected;
    for (int block = 0; block < 3; ++block) {
      sent.insert(sent.end(), kCount, 10 * rank.rank + block);
      expected.insert(expected.end(), kCount, 10 * block + rank.rank);
    }
    const DeviceMemory send(rank.rank, sent);
    const DeviceMemory receive(rank.rank, 3 * kCount * sizeof(int));
    ASSERT_EQ(Api().ncclAlltoAll(send.data(), receive.data(), kCount, ncclInt, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(receive.data(), 3 * kCount), expected);
  });
}

TEST_F(Transfers, GatherCollectsOnTheRootAndScatterSpreads) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank + 5});
    char* const all = memory.data() + 1024;
    char* const back = memory.data() + 2048;
    ASSERT_EQ(Api().ncclGather(memory.data(), all, 1, ncclInt, 1, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(Api().ncclScatter(all, back, 1, ncclInt, 1, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(back, 1), std::vector<int>{rank.rank + 5});
    if (rank.rank == 1) {
      EXPECT_EQ(Download<int>(all, 3), (std::vector<int>{5, 6, 7}));
    }
  });
}

TEST_F(Transfers, RefuseBadArguments) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    Send(rank, memory.data(), 1, 2, ncclInvalidArgument);
    Receive(rank, memory.data(), 1, -1, ncclInvalidArgument);
    Send(rank, nullptr, 1, 1, ncclInvalidArgument);
    Send(rank, memory.data(), SIZE_MAX, 1, ncclInvalidArgument);
    EXPECT_EQ(Api().ncclSend(memory.data(), 1, ncclNumTypes, 1, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclGather(memory.data(), memory.data(), 1, ncclInt, 2, rank.comm, rank.stream),
              ncclInvalidArgument);
    // A group with a refused call does nothing at all.
    ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
    Send(rank, memory.data(), 1, 1 - rank.rank);
    Send(rank, memory.data(), 1, 5, ncclInvalidArgument);
    EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidArgument);
  });
}

// Runs in a process, because it breaks the contexts.
[[noreturn]] void DifferInCount() {
  bool failed = false;
  RunRanks(2, [&](Rank& rank) {
    const auto* const memory = new DeviceMemory(rank.rank, 4096);  // outlives the process
    if (rank.rank == 0) {
      Send(rank, memory->data(), 3, 1);
      Api().cuStreamSynchronize(rank.stream);
    } else {
      Receive(rank, memory->data(), 4, 0);
      failed = Api().cuStreamSynchronize(rank.stream) != CUDA_SUCCESS;
    }
    rank.Abort();
  });
  _exit(failed ? 0 : 1);
}

TEST_F(Transfers, ThatDifferInCountAreReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(DifferInCount(), ::testing::ExitedWithCode(0),
              "a send and its receive differ.*rank 1 receives count 4.*from rank 0.*count 3");
}

}  // namespace
}  // namespace commpool::internal::testing
