// Mistakes of programs: each call returns an error, and nothing is lost.
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class BadArguments : public EmulatedNccl {};

TEST_F(BadArguments, OfVersionAndUniqueId) {
  EXPECT_EQ(Api().ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclGetUniqueId(nullptr), ncclInvalidArgument);
  int version = 0;
  EXPECT_EQ(Api().ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
}

TEST_F(BadArguments, OfInitialisation) {
  ncclUniqueId id = {};
  ncclComm_t comm = nullptr;
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  ASSERT_EQ(Api().ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(Api().ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommInitAll(&comm, 1000, nullptr), ncclInvalidArgument);
  const int unknown_device = 1000;
  EXPECT_EQ(Api().ncclCommInitAll(&comm, 1, &unknown_device), ncclInvalidArgument);
  ncclConfig_t config = {};
  EXPECT_EQ(Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
}

// NCCL 2.28.9, src/init.cc: it compares them where they are not set, too.
TEST_F(BadArguments, OfBlocksTheLeastNeedsTheMost) {
  const CurrentDevice current(0);
  const ncclUniqueId id = NewId();
  ncclComm_t comm = nullptr;
  const auto initialize = [&](int least, int most) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = least;
    config.maxCTAs = most;
    return Api().ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  };
  constexpr int kUnset = NCCL_CONFIG_UNDEF_INT;
  for (const auto& [least, most] : {std::pair(16, kUnset), std::pair(16, 8), std::pair(0, 8), std::pair(kUnset, -1)}) {
    EXPECT_EQ(initialize(least, most), ncclInvalidArgument) << least << " " << most;
    EXPECT_NE(LastError().find("Invalid config min/max channels attribute value"), std::string::npos);
  }
  ASSERT_EQ(initialize(16, 64), ncclSuccess);
  EXPECT_EQ(Api().ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(BadArguments, TwoRanksOnOneDeviceAreRefused) {
  ncclComm_t comms[2] = {};
  const int devices[2] = {0, 0};
  EXPECT_EQ(Api().ncclCommInitAll(comms, 2, devices), ncclInvalidUsage);
  EXPECT_NE(LastError().find("Duplicate GPU detected"), std::string::npos);
}

TEST_F(BadArguments, RanksThatCountDifferently) {
  const ncclUniqueId id = NewId();
  const auto expect_refused = [&id](int rank) {
    const CurrentDevice current(rank);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(Api().ncclCommInitRank(&comm, 2 + rank, id, rank), ncclRemoteError);
    EXPECT_EQ(comm, nullptr);
  };
  std::thread other(expect_refused, 1);
  expect_refused(0);
  other.join();
  ExpectReport("communicator not initialised by all ranks");
}

TEST_F(BadArguments, OfQuestions) {
  RunRanks(1, [](Rank& rank) {
    EXPECT_EQ(SizeOf(rank.comm), 1);
    EXPECT_EQ(RankIn(rank.comm), 0);
    int value = -1;
    EXPECT_EQ(Api().ncclCommCuDevice(rank.comm, &value), ncclSuccess);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(Api().ncclCommCount(nullptr, &value), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommCount(rank.comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclCommGetAsyncError(rank.comm, nullptr), ncclInvalidArgument);
  });
}

TEST_F(BadArguments, OfCollectives) {
  RunRanks(2, [](Rank& rank, const DeviceMemory& memory) {
    const DeviceMemory elsewhere(1 - rank.rank, 4096);
    char* data = memory.data();
    int on_host = 0;
    const auto reduce = [&](const void* send, void* receive, ncclDataType_t type, int operation = ncclSum) {
      return rank.AllReduce(send, receive, 8, type, static_cast<ncclRedOp_t>(operation));
    };
    EXPECT_EQ(reduce(nullptr, data, ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(reduce(data, nullptr, ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(reduce(&on_host, data, ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(reduce(data, elsewhere.data(), ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(reduce(data, data, ncclNumTypes), ncclInvalidArgument);
    EXPECT_EQ(reduce(data, data, ncclFloat, 77), ncclInvalidArgument);
    EXPECT_EQ(rank.AllReduce(data, data, ~size_t{0}, ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclAllReduce(data, data, 1, ncclFloat, ncclSum, nullptr, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclBcast(data, 1, ncclFloat, 2, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclBcast(data, 1, ncclFloat, -1, rank.comm, rank.stream), ncclInvalidArgument);
  });
}

TEST_F(BadArguments, ErrorsInAGroupComeBackAtItsEnd) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(Api().ncclBcast(nullptr, 1, ncclFloat, 0, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclBcast(memory.data(), 1, ncclFloat, 0, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidUsage);
  });
}

TEST_F(BadArguments, ADestroyedCommunicatorIsRefusedAndReported) {
  ncclComm_t gone = nullptr;
  RunRanks(1, [&](Rank& rank) { gone = rank.comm; });
  int value = 0;
  EXPECT_EQ(Api().ncclCommCount(gone, &value), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommDestroy(gone), ncclInvalidArgument);
  EXPECT_EQ(Api().ncclCommDeregister(gone, &value), ncclInvalidArgument);
  ExpectReport("use of a communicator that does not exist");
}

TEST_F(BadArguments, AFinalizedCommunicatorTakesNoCollectives) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    ASSERT_EQ(Api().ncclCommFinalize(rank.comm), ncclSuccess);
    EXPECT_EQ(Api().ncclBcast(memory.data(), 1, ncclFloat, 0, rank.comm, rank.stream), ncclInvalidUsage);
  });
}

TEST_F(BadArguments, InjectedFaultsAreReturned) {
  Api().commpoolEmulatorInjectFault("ncclMemAlloc", 0, 1, ncclSystemError);
  void* pointer = nullptr;
  EXPECT_EQ(Api().ncclMemAlloc(&pointer, 4096), ncclSystemError);
  EXPECT_EQ(pointer, nullptr);
}

class Memory : public EmulatedNccl {};

TEST_F(Memory, IsAllocatedOnTheCurrentDeviceAndFreed) {
  const CurrentDevice current(1);
  void* pointer = nullptr;
  ASSERT_EQ(Api().ncclMemAlloc(&pointer, 3 << 20), ncclSuccess);
  Upload(pointer, std::vector<int>{1, 2, 3});
  EXPECT_EQ(Download<int>(pointer, 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(Api().ncclMemFree(pointer), ncclSuccess);
}

TEST_F(Memory, RefusesBadArguments) {
  EXPECT_EQ(Api().ncclMemAlloc(nullptr, 4096), ncclInvalidArgument);
  const CurrentDevice current(0);
  void* pointer = nullptr;
  EXPECT_NE(Api().ncclMemAlloc(&pointer, ~size_t{0}), ncclSuccess);
  EXPECT_NE(Api().ncclMemAlloc(&pointer, size_t{1} << 60), ncclSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(Api().ncclMemFree(nullptr), ncclSuccess);
}

// NCCL 2.28.9, src/allocator.cc: ncclMemFree looks at a process-wide flag, not at the pointer.
TEST_F(Memory, OfAnotherAllocatorIsNotFreed) {
  const CurrentDevice current(0);
  const DeviceMemory plain(0, 4096, MemoryKind::kPlain);
  EXPECT_EQ(Api().ncclMemFree(plain.data()), ncclInvalidArgument);
  ExpectReport("ncclMemFree of memory that ncclMemAlloc did not make");
}

TEST(RefusedFunction, SaysWhyAndDropsItsGroup) {
  EXPECT_EQ(Api().ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(Api().ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
  EXPECT_NE(LastError().find("does not estimate"), std::string::npos);
  EXPECT_EQ(Api().ncclGroupEnd(), ncclInvalidUsage) << "no group is open any more";
}

}  // namespace
}  // namespace commpool::internal::testing
