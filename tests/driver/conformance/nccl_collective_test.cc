// Communicators, collectives and windows over all the devices that a test asks for.
#include <cuda.h>
#include <nccl.h>

#include <algorithm>

#include "src/library/base/bytes.h"
#include "tests/driver/conformance/nccl_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kElements = 1024;
constexpr uint64_t kBytes = kElements * sizeof(float);

class NcclCollective : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    if (!IsSkipped()) Connect(std::min(2, DeviceCountOfTests()));
  }
  int size() { return static_cast<int>(ranks().size()); }
  uint64_t granularity() { return GranularityAt(driver(), DeviceLocation(0)); }

  // Rank r sends r + 1 everywhere; every rank gets the sum.
  void ExpectSums(const std::vector<MappedMemory>& memories) {
    ForEachRank([&](Rank& rank) {
      const CUdeviceptr send = OfRank(memories, rank).address();
      Upload(send, std::vector<float>(kElements, static_cast<float>(rank.rank + 1)));
      Upload(send + kBytes, std::vector<float>(kElements, 0));
    });
    Grouped([&](Rank& rank) {
      const CUdeviceptr send = OfRank(memories, rank).address();
      EXPECT_EQ(nccl().ncclAllReduce(ToPointer(send), ToPointer(send + kBytes), kElements, ncclFloat, ncclSum,
                                     rank.communicator, rank.stream),
                ncclSuccess);
    });
    Synchronize();
    ForEachRank([&](Rank& rank) {
      const CUdeviceptr receive = OfRank(memories, rank).address() + kBytes;
      const auto sum = static_cast<float>(size() * (size() + 1) / 2);
      EXPECT_EQ(Download<float>(receive, kElements), std::vector<float>(kElements, sum));
    });
  }
};

TEST_F(NcclCollective, ACommunicatorTellsItsRankSizeAndDevice) {
  ForEachRank([&](Rank& rank) {
    int value = -1;
    ASSERT_EQ(nccl().ncclCommCount(rank.communicator, &value), ncclSuccess);
    EXPECT_EQ(value, size());
    ASSERT_EQ(nccl().ncclCommUserRank(rank.communicator, &value), ncclSuccess);
    EXPECT_EQ(value, rank.rank);
    ASSERT_EQ(nccl().ncclCommCuDevice(rank.communicator, &value), ncclSuccess);
    EXPECT_EQ(value, rank.rank);
  });
}

TEST_F(NcclCollective, AllReduceSumsOverRanks) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  ExpectSums(memories);
  ForEachRank([&](Rank& rank) {
    ncclResult_t error = ncclInternalError;
    EXPECT_EQ(nccl().ncclCommGetAsyncError(rank.communicator, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
  });
}

TEST_F(NcclCollective, AllGatherOrdersByRank) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  ForEachRank(
      [&](Rank& rank) { Upload(OfRank(memories, rank).address(), std::vector<int>(kElements, rank.rank + 10)); });
  Grouped([&](Rank& rank) {
    const CUdeviceptr send = OfRank(memories, rank).address();
    EXPECT_EQ(nccl().ncclAllGather(ToPointer(send), ToPointer(send + kBytes), kElements, ncclInt32, rank.communicator,
                                   rank.stream),
              ncclSuccess);
  });
  Synchronize();
  std::vector<int> expected;
  for (int rank = 0; rank < size(); ++rank) expected.insert(expected.end(), kElements, rank + 10);
  ForEachRank([&](Rank& rank) {
    EXPECT_EQ(Download<int>(OfRank(memories, rank).address() + kBytes, expected.size()), expected);
  });
}

TEST_F(NcclCollective, BroadcastGivesEveryRankTheRoots) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  const int root = size() - 1;
  ForEachRank(
      [&](Rank& rank) { Upload(OfRank(memories, rank).address(), std::vector<int>(kElements, rank.rank + 10)); });
  Grouped([&](Rank& rank) {
    void* const data = ToPointer(OfRank(memories, rank).address());
    EXPECT_EQ(nccl().ncclBroadcast(data, data, kElements, ncclInt32, root, rank.communicator, rank.stream),
              ncclSuccess);
  });
  Synchronize();
  ForEachRank([&](Rank& rank) {
    EXPECT_EQ(Download<int>(OfRank(memories, rank).address(), kElements), std::vector<int>(kElements, root + 10));
  });
}

TEST_F(NcclCollective, ReduceScatterGivesEachRankItsBlock) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  ForEachRank([&](Rank& rank) {
    std::vector<int> values;
    for (int block = 0; block < size(); ++block) values.insert(values.end(), kElements, 10 * block + rank.rank);
    Upload(OfRank(memories, rank).address(), values);
  });
  const uint64_t result = static_cast<uint64_t>(size()) * kBytes;
  Grouped([&](Rank& rank) {
    const CUdeviceptr send = OfRank(memories, rank).address();
    EXPECT_EQ(nccl().ncclReduceScatter(ToPointer(send), ToPointer(send + result), kElements, ncclInt32, ncclSum,
                                       rank.communicator, rank.stream),
              ncclSuccess);
  });
  Synchronize();
  ForEachRank([&](Rank& rank) {
    const int expected = 10 * rank.rank * size() + size() * (size() - 1) / 2;
    EXPECT_EQ(Download<int>(OfRank(memories, rank).address() + result, kElements),
              std::vector<int>(kElements, expected));
  });
}

TEST_F(NcclCollective, ReduceBringsTheMaximumToItsRoot) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  ForEachRank(
      [&](Rank& rank) { Upload(OfRank(memories, rank).address(), std::vector<double>(kElements / 2, rank.rank)); });
  Grouped([&](Rank& rank) {
    const CUdeviceptr send = OfRank(memories, rank).address();
    EXPECT_EQ(nccl().ncclReduce(ToPointer(send), ToPointer(send + kBytes), kElements / 2, ncclDouble, ncclMax, 0,
                                rank.communicator, rank.stream),
              ncclSuccess);
  });
  Synchronize();
  ForEachRank([&](Rank& rank) {
    if (rank.rank != 0) return;
    EXPECT_EQ(Download<double>(OfRank(memories, rank).address() + kBytes, kElements / 2),
              std::vector<double>(kElements / 2, size() - 1));
  });
}

TEST_F(NcclCollective, SendsAndReceivesOfAGroupSwapElements) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  ForEachRank([&](Rank& rank) { Upload(OfRank(memories, rank).address(), std::vector<int>(kElements, rank.rank)); });
  Grouped([&](Rank& rank) {
    const CUdeviceptr send = OfRank(memories, rank).address();
    const int next = (rank.rank + 1) % size();
    const int previous = (rank.rank + size() - 1) % size();
    EXPECT_EQ(nccl().ncclSend(ToPointer(send), kElements, ncclInt32, next, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(nccl().ncclRecv(ToPointer(send + kBytes), kElements, ncclInt32, previous, rank.communicator, rank.stream),
              ncclSuccess);
  });
  Synchronize();
  ForEachRank([&](Rank& rank) {
    EXPECT_EQ(Download<int>(OfRank(memories, rank).address() + kBytes, kElements),
              std::vector<int>(kElements, (rank.rank + size() - 1) % size()));
  });
}

TEST_F(NcclCollective, APreMultipliedSumScalesEachRanksValues) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  std::vector<ncclRedOp_t> operations(ranks().size());
  ForEachRank([&](Rank& rank) {
    Upload(OfRank(memories, rank).address(), std::vector<float>(kElements, 2));
    auto scalar = static_cast<float>(rank.rank + 1);
    ASSERT_EQ(nccl().ncclRedOpCreatePreMulSum(&OfRank(operations, rank), &scalar, ncclFloat, ncclScalarHostImmediate,
                                              rank.communicator),
              ncclSuccess);
  });
  Grouped([&](Rank& rank) {
    void* const data = ToPointer(OfRank(memories, rank).address());
    EXPECT_EQ(nccl().ncclAllReduce(data, data, kElements, ncclFloat, OfRank(operations, rank), rank.communicator,
                                   rank.stream),
              ncclSuccess);
  });
  Synchronize();
  ForEachRank([&](Rank& rank) {
    const auto sum = static_cast<float>(size() * (size() + 1));
    EXPECT_EQ(Download<float>(OfRank(memories, rank).address(), kElements), std::vector<float>(kElements, sum));
    EXPECT_EQ(nccl().ncclRedOpDestroy(OfRank(operations, rank), rank.communicator), ncclSuccess);
  });
}

class NcclWindow : public NcclCollective {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_NCCL();
    if (!nccl().has_windows()) GTEST_SKIP() << nccl().WhyNoWindows();
    COMMPOOL_REQUIRE_DEVICES(2);
    Connect(2);
  }

  std::vector<ncclWindow_t> Register(const std::vector<MappedMemory>& memories, uint64_t offset = 0) {
    std::vector<ncclWindow_t> windows(ranks().size());
    Grouped([&](Rank& rank) {
      const MappedMemory& memory = OfRank(memories, rank);
      EXPECT_EQ(nccl().ncclCommWindowRegister(rank.communicator, ToPointer(memory.address() + offset),
                                              memory.bytes() - offset, &OfRank(windows, rank), NCCL_WIN_COLL_SYMMETRIC),
                ncclSuccess);
    });
    return windows;
  }
  void Deregister(const std::vector<ncclWindow_t>& windows) {
    Synchronize();
    ForEachRank([&](Rank& rank) {
      EXPECT_EQ(nccl().ncclCommWindowDeregister(rank.communicator, OfRank(windows, rank)), ncclSuccess);
    });
  }
};

TEST_F(NcclWindow, TakesMemoryOfCuMemCreate) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  const std::vector<ncclWindow_t> windows = Register(memories);
  for (const ncclWindow_t window : windows) EXPECT_NE(window, nullptr);
  ExpectSums(memories);
  Deregister(windows);
}

TEST_F(NcclWindow, BeginsAtAMultipleOf4096) {
  const std::vector<MappedMemory> memories = MakeMappedOnEachRank(granularity());
  const std::vector<ncclWindow_t> windows = Register(memories, 8192);
  for (const ncclWindow_t window : windows) EXPECT_NE(window, nullptr);
  Deregister(windows);
}

TEST_F(NcclWindow, AGroupFillsItsWindowsAtItsEnd) {
  const std::vector<MappedMemory> first = MakeMappedOnEachRank(granularity());
  const std::vector<MappedMemory> second = MakeMappedOnEachRank(granularity());
  const std::vector<ncclWindow_t> windows = Register(first);
  const std::vector<ncclWindow_t> others = Register(second);
  for (size_t rank = 0; rank < windows.size(); ++rank) EXPECT_NE(windows[rank], others[rank]);
  ExpectSums(second);
  Deregister(others);
  ExpectSums(first);
  Deregister(windows);
}

}  // namespace
}  // namespace commpool::internal::testing
