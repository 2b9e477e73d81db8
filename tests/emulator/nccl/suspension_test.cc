// A communicator gives its own memory back for a while (NCCL 2.30.7, src/mem_manager.cc).
#include <cstdlib>
#include <future>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7,nccl_timeout_ms=2000", 1);

class Suspension : public EmulatedNccl {
 protected:
  static uint64_t Figure(ncclComm_t comm, ncclCommMemStat_t figure) {
    uint64_t value = UINT64_MAX;
    EXPECT_EQ(Api().ncclCommMemStats(comm, figure, &value), ncclSuccess);
    return value;
  }
  static size_t Free() {
    size_t free = 0, total = 0;
    EXPECT_EQ(Api().cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static ncclResult_t Sleep(ncclComm_t comm) { return Api().ncclCommSuspend(comm, NCCL_SUSPEND_MEM); }
  static ncclResult_t Wake(ncclComm_t comm) { return Api().ncclCommResume(comm); }
  static ncclResult_t Sum(const Rank& rank, const DeviceMemory& memory) { return rank.AllReduce(memory, 1, ncclInt); }
};

TEST_F(Suspension, GivesItsBytesBackAndTakesThemAgain) {
  RunRanks(2, [](Rank& rank) {
    const uint64_t bytes = Figure(rank.comm, ncclStatGpuMemSuspend);
    EXPECT_GT(bytes, 0u);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemTotal), bytes + Figure(rank.comm, ncclStatGpuMemPersist));
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 0u);
    const size_t free = Free();
    ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
    EXPECT_EQ(Free(), free + bytes);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 1u);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspend), bytes);
    ASSERT_EQ(Wake(rank.comm), ncclSuccess);
    EXPECT_EQ(Free(), free);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 0u);
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank + 1});
    ASSERT_EQ(Sum(rank, memory), ncclSuccess);
    EXPECT_EQ(rank.Result<int>(memory.data(), 1)[0], 3);
  });
}

TEST_F(Suspension, WaitsForTheDevice) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank + 1});
    ASSERT_EQ(Sum(rank, memory), ncclSuccess);
    ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
    EXPECT_EQ(Api().cuStreamQuery(rank.stream), CUDA_SUCCESS);
    ASSERT_EQ(Wake(rank.comm), ncclSuccess);
  });
}

TEST_F(Suspension, IsInvalidTwiceAndSoIsResumingTwice) {
  RunRanks(1, [](Rank& rank) {
    EXPECT_EQ(Wake(rank.comm), ncclInvalidUsage);
    ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
    EXPECT_EQ(Sleep(rank.comm), ncclInvalidUsage);
    ASSERT_EQ(Wake(rank.comm), ncclSuccess);
    EXPECT_EQ(Wake(rank.comm), ncclInvalidUsage);
  });
}

TEST_F(Suspension, WithoutTheFlagDoesNothing) {
  RunRanks(1, [](Rank& rank) {
    EXPECT_EQ(Api().ncclCommSuspend(rank.comm, 0), ncclSuccess);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 0u);
    EXPECT_EQ(Api().ncclCommMemStats(rank.comm, ncclStatGpuMemTotal, nullptr), ncclInvalidArgument);
  });
}

TEST_F(Suspension, ACommunicatorMayEndInIt) {
  RunRanks(2, [](Rank& rank) { EXPECT_EQ(Sleep(rank.comm), ncclSuccess); });
}

TEST_F(Suspension, CollectivesTransfersAndWindowsAreRefusedMeanwhile) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
    EXPECT_EQ(Sum(rank, memory), ncclInvalidUsage);
    EXPECT_EQ(Api().ncclSend(memory.data(), 1, ncclInt, 0, rank.comm, rank.stream), ncclInvalidUsage);
    ExpectNoWindow(rank, memory.data(), memory.bytes(), ncclInvalidUsage);
    const std::string rule = "a suspended communicator is used: rank 0 in ";
    ExpectReports({rule + "AllReduce", rule + "ncclSend", rule + "ncclCommWindowRegister"});
    ASSERT_EQ(Wake(rank.comm), ncclSuccess);
    EXPECT_EQ(Sum(rank, memory), ncclSuccess);
    rank.Synchronize();
  });
}

// NCCL maps its memory at the same addresses, so what a graph holds is right again.
TEST_F(Suspension, GraphsHoldAfterIt) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    const auto executable = Capture(rank, [&] { EXPECT_EQ(Sum(rank, memory), ncclSuccess); });
    for (int time = 0; time < 2; ++time) {
      Upload(memory.data(), std::vector<int>{1});
      ASSERT_EQ(Api().cuGraphLaunch(executable.get(), rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(rank.Result<int>(memory.data(), 1)[0], 2);
      ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
      ASSERT_EQ(Wake(rank.comm), ncclSuccess);
    }
  });
}

TEST_F(Suspension, WaitsForEveryRankAndReportsOneThatDoesNotCome) {
  std::promise<void> failed;
  RunRanks(2, [&](Rank& rank) {
    if (rank.rank == 1) return failed.get_future().wait();
    EXPECT_EQ(Sleep(rank.comm), ncclRemoteError);
    EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 0u);
    failed.set_value();
  });
  ExpectReport("a rank is missing from a collective call: rank 0 in ncclCommSuspend");
}

TEST_F(Suspension, ADeviceWithoutRoomFailsItsOwnRankOnlyAndTheOthersWait) {
  std::promise<void> failed, also_failed;
  RunRanks(2, [&](Rank& rank) {
    ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
    if (rank.rank == 0) {
      Api().commpoolEmulatorInjectFault("cuMemCreate", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
      EXPECT_EQ(Wake(rank.comm), ncclUnhandledCudaError);
      EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 1u);
      failed.set_value();
      return also_failed.get_future().wait();
    }
    failed.get_future().wait();
    EXPECT_EQ(Wake(rank.comm), ncclRemoteError);
    also_failed.set_value();
  });
  ExpectReport("a rank is missing from a collective call: rank 1 in ncclCommResume");
}

TEST_F(Suspension, CommunicatorsThatShareResourcesAreRefused) {
  const ncclUniqueId id = NewId();
  RunRanks(2, [&](Rank& rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t parent = nullptr;
    ASSERT_EQ(Api().ncclCommInitRankConfig(&parent, rank.ranks, id, rank.rank, &config), ncclSuccess);
    auto child = ScopedChild(parent, 0, rank.rank);
    EXPECT_EQ(Sleep(parent), ncclInvalidUsage);
    EXPECT_EQ(Sleep(child.get()), ncclInvalidUsage);
    EXPECT_EQ(Wake(child.get()), ncclInvalidUsage);
    child.reset();
    EXPECT_EQ(Sleep(parent), ncclSuccess) << "it is the only one again";
    EXPECT_EQ(Wake(parent), ncclSuccess);
    EXPECT_EQ(Api().ncclCommDestroy(parent), ncclSuccess);
  });
}

// NCCL 2.30.7, src/mem_manager.cc: nobody hears it from NCCL. The collective that finds it loses the context.
TEST_F(Suspension, MemoryThatCameBackWithoutThePeersIsFoundByTheNextCollectiveAlone) {
  InANewProcess([this] {
    Api().commpoolEmulatorInjectFault("ncclCommResume import", 0, 2, ncclSystemError);
    RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
      ASSERT_EQ(Sleep(rank.comm), ncclSuccess);
      ASSERT_EQ(Wake(rank.comm), ncclSuccess);
      EXPECT_EQ(Figure(rank.comm, ncclStatGpuMemSuspended), 0u);
      ASSERT_EQ(Sum(rank, memory), ncclSuccess);
      EXPECT_EQ(Api().cuStreamSynchronize(rank.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(AsyncError(rank.comm), ncclUnhandledCudaError);
      rank.Abort();
    });
    ExpectReports({"the memory of rank 0 did not come back", "the memory of rank 1 did not come back"});
    TearDown();  // this process ends without it
  });
}

// As on two H100s with NCCL 2.30.7: what the child's configuration says of sharing is for the child's own children.
TEST_F(Suspension, ChildrenOfAParentThatDoesNotShareAreNot) {
  RunRanks(2, [](Rank& rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    const auto child = ScopedChild(rank.comm, 0, rank.rank, &config);
    EXPECT_EQ(Sleep(rank.comm), ncclSuccess);
    EXPECT_EQ(Figure(child.get(), ncclStatGpuMemSuspended), 0u);
    EXPECT_EQ(Wake(rank.comm), ncclSuccess);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
