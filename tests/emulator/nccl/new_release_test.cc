// As release 2.30.7: newer releases allow what 2.28.9 refuses (registration_test.cc).
#include <cstdlib>
#include <future>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

[[maybe_unused]] const int kNewer = setenv("COMMPOOL_EMULATOR", "nccl=2.30.7", 1);
const char* const kLogFile = "new_release.log";
[[maybe_unused]] const int kLog =
    setenv("NCCL_DEBUG_FILE", kLogFile, 1) + setenv("NCCL_DEBUG", "INFO", 1) + setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);

constexpr size_t kBytes = 2 << 20;

class NewRelease : public EmulatedNccl {};

// NCCL 2.30.3's release notes; before, a window is one physical handle.
TEST_F(NewRelease, TakesWindowsOfSeveralPhysicalHandles) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 2 * kBytes);
    const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
    ASSERT_EQ(Api().cuMemUnmap(address, 2 * kBytes), CUDA_SUCCESS);
    for (const CUdeviceptr part : {address, address + kBytes}) MapNewMemory(rank.rank, part, kBytes);
    const auto window = ScopedWindow(rank, memory);
    char reason[128] = {};
    EXPECT_EQ(Api().commpoolEmulatorNvls(address, reason, sizeof reason), 0);
    EXPECT_STREQ(reason, "its memory is not one physical handle");
  });
}

TEST_F(NewRelease, StillRefusesAWindowThatRunsPastItsMemory) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) { ExpectNoWindow(rank, memory.data(), 2 * kBytes); });
  ExpectReport("window is larger than its physical handle");
}

// NCCL's user guide: memory of a NUMA node from 2.30.3, of any node of the host never.
TEST_F(NewRelease, TakesWindowsOfANumaNodesMemory) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    EXPECT_NE(ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC).get(), nullptr);
    const DeviceMemory anywhere(rank.rank, kBytes, MemoryKind::kVirtual, CU_MEM_LOCATION_TYPE_HOST,
                                CU_MEM_HANDLE_TYPE_NONE);
    ExpectNoWindow(rank, anywhere.data(), kBytes);
  });
}

TEST_F(NewRelease, TakesWindowsOfUnequalSizes) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, kBytes * static_cast<size_t>(rank.rank + 1));
    EXPECT_NE(ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC).get(), nullptr);
  });
}

// NCCL 2.30.3's release notes: averages of floats; whole numbers and maxima not (NVIDIA/nccl#2014).
TEST_F(NewRelease, HasSymmetricKernelsForAverages) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    char* const data = memory.data();
    const auto window = ScopedWindow(rank, memory, NCCL_WIN_COLL_SYMMETRIC);
    ASSERT_EQ(Api().ncclReduceScatter(data, data + 4096, 64, ncclFloat, ncclAvg, rank.comm, rank.stream), ncclSuccess);
    ASSERT_EQ(rank.AllReduce(data, data, 64, ncclFloat, ncclMax), ncclSuccess);
    rank.Synchronize();
  });
  const std::string log = Read(kLogFile);
  EXPECT_NE(log.find("ReduceScatter [Symmetric]"), std::string::npos) << log;
  EXPECT_EQ(log.find("AllReduce [Symmetric]"), std::string::npos) << log;
}

// NCCL 2.29.7: ending a communicator takes its windows down.
TEST_F(NewRelease, TakesLeftWindowsDownWithTheirCommunicator) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    RegisterWindow(rank, memory);
    rank.Destroy();
  });
}

// ncclCommGrow, which begins with 2.29.2: old ranks and new ones in one communicator.

class GrownCommunicators : public EmulatedNccl {};

void ExpectMember(ncclComm_t comm, int rank, int ranks) {
  EXPECT_EQ(RankIn(comm), rank);
  EXPECT_EQ(SizeOf(comm), ranks);
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
