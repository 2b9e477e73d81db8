// Communicators, collectives and windows over all the devices that a test asks for.
#include <algorithm>
#include <functional>
#include <utility>

#include "src/library/base/bytes.h"
#include "tests/driver/conformance/nccl_fixture.h"

namespace commpool::internal::testing {
namespace {

constexpr size_t kElements = 1024;
constexpr uint64_t kReceived = kMiB;  // where ranks receive in their memory, which has 2 MiB

template <typename T>
std::vector<T> All(T value) {
  return std::vector<T>(kElements, value);
}

class NcclCollective : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    if (IsSkipped()) return;
    Connect(std::min(2, DeviceCountOfTests()));
    memories_ = MakeMemories();
  }
  int size() { return static_cast<int>(ranks().size()); }
  uint64_t granularity() { return GranularityAt(driver(), DeviceLocation(0)); }
  std::vector<MappedMemory> MakeMemories() {
    std::vector<MappedMemory> memories;
    ForEachRank(
        [&](Rank& rank) { memories.emplace_back(driver(), DeviceLocation(rank.rank), granularity(), rank.rank); });
    return memories;
  }
  CUdeviceptr AddressOf(const Rank& rank) { return OfRank(memories_, rank).address(); }

  // What a rank of this number sends; what it must find, if anything. Where ranks receive, nothing is left of earlier
  // tests.
  template <typename ValuesOf>
  void Give(const ValuesOf& values_of) {
    ForEachRank([&](Rank& rank) {
      Upload(AddressOf(rank) + kReceived, All<uint64_t>(~uint64_t{0}));
      Upload(AddressOf(rank), values_of(rank.rank));
    });
  }
  void Run(const std::function<ncclResult_t(Rank&, void* sent, void* received)>& call) {
    Grouped([&](Rank& rank) {
      const CUdeviceptr address = AddressOf(rank);
      EXPECT_EQ(call(rank, ToPointer(address), ToPointer(address + kReceived)), ncclSuccess);
    });
    Synchronize();
  }
  template <typename ValuesOf>
  void ExpectEach(const ValuesOf& values_of, uint64_t place = kReceived) {
    ForEachRank([&](Rank& rank) {
      const auto expected = values_of(rank.rank);
      if (expected.empty()) return;
      using Value = typename decltype(expected)::value_type;
      EXPECT_EQ(Download<Value>(AddressOf(rank) + place, expected.size()), expected) << "rank " << rank.rank;
    });
  }

  // Rank r sends r + 1 everywhere; every rank gets the sum.
  void ExpectSums() {
    Give([](int rank) { return All(static_cast<float>(rank + 1)); });
    Run([&](Rank& rank, void* sent, void* received) {
      return nccl().ncclAllReduce(sent, received, kElements, ncclFloat, ncclSum, rank.communicator, rank.stream);
    });
    ExpectEach([&](int) { return All(static_cast<float>(size() * (size() + 1) / 2)); });
  }

  std::vector<MappedMemory> memories_;
};

TEST_F(NcclCollective, ACommunicatorTellsItsRankSizeAndDevice) {
  ForEachRank([&](Rank& rank) {
    ExpectPlace(rank.communicator, rank.rank, size());
    int value = -1;
    ASSERT_EQ(nccl().ncclCommCuDevice(rank.communicator, &value), ncclSuccess);
    EXPECT_EQ(value, rank.rank);
  });
}

TEST_F(NcclCollective, AllReduceSumsOverRanks) {
  ExpectSums();
  ForEachRank([&](Rank& rank) {
    ncclResult_t error = ncclInternalError;
    EXPECT_EQ(nccl().ncclCommGetAsyncError(rank.communicator, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
  });
}

TEST_F(NcclCollective, AllGatherOrdersByRank) {
  Give([](int rank) { return All(rank + 10); });
  Run([&](Rank& rank, void* sent, void* received) {
    return nccl().ncclAllGather(sent, received, kElements, ncclInt32, rank.communicator, rank.stream);
  });
  std::vector<int> expected;
  for (int rank = 0; rank < size(); ++rank) expected.insert(expected.end(), kElements, rank + 10);
  ExpectEach([&](int) { return expected; });
}

TEST_F(NcclCollective, BroadcastGivesEveryRankTheRoots) {
  const int root = size() - 1;
  Give([](int rank) { return All(rank + 10); });
  Run([&](Rank& rank, void* data, void*) {
    return nccl().ncclBroadcast(data, data, kElements, ncclInt32, root, rank.communicator, rank.stream);
  });
  ExpectEach([&](int) { return All(root + 10); }, 0);
}

TEST_F(NcclCollective, ReduceScatterGivesEachRankItsBlock) {
  Give([&](int rank) {
    std::vector<int> values;
    for (int block = 0; block < size(); ++block) values.insert(values.end(), kElements, 10 * block + rank);
    return values;
  });
  Run([&](Rank& rank, void* sent, void* received) {
    return nccl().ncclReduceScatter(sent, received, kElements, ncclInt32, ncclSum, rank.communicator, rank.stream);
  });
  ExpectEach([&](int rank) { return All(10 * rank * size() + size() * (size() - 1) / 2); });
}

TEST_F(NcclCollective, ReduceBringsTheMaximumToItsRoot) {
  Give([](int rank) { return All(static_cast<double>(rank)); });
  Run([&](Rank& rank, void* sent, void* received) {
    return nccl().ncclReduce(sent, received, kElements, ncclDouble, ncclMax, 0, rank.communicator, rank.stream);
  });
  ExpectEach([&](int rank) { return rank == 0 ? All(size() - 1.0) : std::vector<double>(); });
}

TEST_F(NcclCollective, SendsAndReceivesOfAGroupSwapElements) {
  Give([](int rank) { return All(rank); });
  Run([&](Rank& rank, void* sent, void* received) {
    const int next = (rank.rank + 1) % size();
    const int previous = (rank.rank + size() - 1) % size();
    EXPECT_EQ(nccl().ncclSend(sent, kElements, ncclInt32, next, rank.communicator, rank.stream), ncclSuccess);
    return nccl().ncclRecv(received, kElements, ncclInt32, previous, rank.communicator, rank.stream);
  });
  ExpectEach([&](int rank) { return All((rank + size() - 1) % size()); });
}

TEST_F(NcclCollective, APreMultipliedSumScalesEachRanksValues) {
  std::vector<ncclRedOp_t> operations(ranks().size());
  Give([](int) { return All(2.0f); });
  ForEachRank([&](Rank& rank) {
    auto scalar = static_cast<float>(rank.rank + 1);
    ASSERT_EQ(nccl().ncclRedOpCreatePreMulSum(&OfRank(operations, rank), &scalar, ncclFloat, ncclScalarHostImmediate,
                                              rank.communicator),
              ncclSuccess);
  });
  Run([&](Rank& rank, void* data, void*) {
    return nccl().ncclAllReduce(data, data, kElements, ncclFloat, OfRank(operations, rank), rank.communicator,
                                rank.stream);
  });
  ExpectEach([&](int) { return All(static_cast<float>(size() * (size() + 1))); }, 0);
  ForEachRank([&](Rank& rank) {
    EXPECT_EQ(nccl().ncclRedOpDestroy(OfRank(operations, rank), rank.communicator), ncclSuccess);
  });
}

class NcclWindow : public NcclCollective {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_DEVICES(2);
    NcclCollective::SetUp();
    if (!IsSkipped() && !nccl().has_windows()) GTEST_SKIP() << nccl().WhyNoWindows();
  }

  std::vector<ncclWindow_t> Register(uint64_t offset = 0) {
    std::vector<ncclWindow_t> windows(ranks().size());
    Grouped([&](Rank& rank) {
      const MappedMemory& memory = OfRank(memories_, rank);
      EXPECT_EQ(nccl().ncclCommWindowRegister(rank.communicator, ToPointer(memory.address() + offset),
                                              memory.bytes() - offset, &OfRank(windows, rank), NCCL_WIN_COLL_SYMMETRIC),
                ncclSuccess);
    });
    for (const ncclWindow_t window : windows) EXPECT_NE(window, nullptr);
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
  const std::vector<ncclWindow_t> windows = Register();
  ExpectSums();
  Deregister(windows);
}

TEST_F(NcclWindow, BeginsAtAMultipleOf4096) { Deregister(Register(8192)); }

TEST_F(NcclWindow, AGroupFillsItsWindowsAtItsEnd) {
  const std::vector<ncclWindow_t> windows = Register();
  std::vector<MappedMemory> first = std::exchange(memories_, MakeMemories());
  const std::vector<ncclWindow_t> others = Register();
  for (size_t rank = 0; rank < windows.size(); ++rank) EXPECT_NE(windows[rank], others[rank]);
  ExpectSums();
  Deregister(others);
  std::swap(memories_, first);
  ExpectSums();
  Deregister(windows);
}

}  // namespace
}  // namespace commpool::internal::testing
