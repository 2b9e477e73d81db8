// All-reduce, all-gather and broadcast across rank threads of one process.
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Collectives : public EmulatedNccl {};

// One all-reduce of `count` elements on `ranks` ranks; every element on every rank must equal `expected`.
template <typename T>
void ExpectAllReduce(int ranks, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                     const std::function<T(size_t)>& expected) {
  RunRanks(ranks, [&](Rank& rank) {
    const DeviceMemory send(rank.rank, count * sizeof(T));
    const DeviceMemory receive(rank.rank, count * sizeof(T));
    Upload(send.data(), Values<T>(rank.rank, count));
    ASSERT_EQ(Api().ncclAllReduce(send.data(), receive.data(), count, type, operation, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    const std::vector<T> got = Download<T>(receive.data(), count);
    for (size_t index = 0; index < count; ++index) ASSERT_EQ(got[index], expected(index)) << index;
  });
}

template <typename T>
void ExpectSum(int ranks, size_t count, ncclDataType_t type) {
  ExpectAllReduce<T>(ranks, count, type, ncclSum, [&](size_t index) {
    return static_cast<T>(static_cast<int>(index % 5) * ranks + ranks * (ranks - 1) / 2);
  });
}

TEST_F(Collectives, AllReduceAddsFloats) { ExpectSum<float>(4, 1000, ncclFloat); }
TEST_F(Collectives, AllReduceAddsOneElement) { ExpectSum<float>(4, 1, ncclFloat); }
TEST_F(Collectives, AllReduceAddsMoreThanOneSlice) { ExpectSum<float>(3, 1'000'003, ncclFloat); }
TEST_F(Collectives, AllReduceAddsWholeNumbers) {
  ExpectSum<int32_t>(2, 999, ncclInt32);
  ExpectSum<int8_t>(2, 7, ncclInt8);
  ExpectSum<uint8_t>(2, 7, ncclUint8);
  ExpectSum<uint32_t>(2, 7, ncclUint32);
  ExpectSum<int64_t>(2, 7, ncclInt64);
  ExpectSum<uint64_t>(2, 7, ncclUint64);
}
TEST_F(Collectives, AllReduceAddsDoubles) { ExpectSum<double>(4, 77, ncclDouble); }

TEST_F(Collectives, AllReduceKnowsProductMaximumAndMinimum) {
  ExpectAllReduce<int32_t>(2, 10, ncclInt32, ncclProd, [](size_t i) { return Value(0, i) * Value(1, i); });
  ExpectAllReduce<int32_t>(3, 10, ncclInt32, ncclMax, [](size_t i) { return Value(2, i); });
  ExpectAllReduce<float>(3, 10, ncclFloat, ncclMin, [](size_t i) { return static_cast<float>(Value(0, i)); });
}

TEST_F(Collectives, AllReduceAverages) {
  ExpectAllReduce<float>(4, 1000, ncclFloat, ncclAvg, [](size_t i) { return static_cast<float>(Value(0, i)) + 1.5f; });
  ExpectAllReduce<int32_t>(4, 1000, ncclInt32, ncclAvg, [](size_t i) { return (4 * Value(0, i) + 6) / 4; });
}

TEST_F(Collectives, AllReduceAddsHalves) {
  RunRanks(2, [](Rank& rank) {
    // 1.5 and 2048 as IEEE halves; 1 + 2048 rounds to even.
    const std::vector<uint16_t> mine = {0x3e00, rank.rank == 0 ? uint16_t{0x6800} : uint16_t{0x3c00}};
    const DeviceMemory memory(rank.rank, 4);
    Upload(memory.data(), mine);
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 2, ncclHalf, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    EXPECT_EQ(Download<uint16_t>(memory.data(), 2), (std::vector<uint16_t>{0x4200, 0x6800}));
  });
}

TEST_F(Collectives, AllReduceInPlaceEndsWithTheSameBitsOnEveryRank) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 300'001;
  std::array<std::vector<float>, kRanks> results;
  RunRanks(kRanks, [&](Rank& rank) {
    std::vector<float> values(kCount);
    for (size_t index = 0; index < kCount; ++index) {
      values[index] = std::sin(static_cast<float>(index) * static_cast<float>(rank.rank + 1));
    }
    const DeviceMemory memory(rank.rank, kCount * sizeof(float));
    Upload(memory.data(), values);
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), kCount, ncclFloat, ncclAvg, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    results[static_cast<size_t>(rank.rank)] = Download<float>(memory.data(), kCount);
  });
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(std::memcmp(results[0].data(), results[static_cast<size_t>(rank)].data(), kCount * sizeof(float)), 0);
  }
}

TEST_F(Collectives, AllReduceOfNothingDoesNothing) {
  RunRanks(2, [](Rank& rank) {
    EXPECT_EQ(Api().ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, rank.comm, rank.stream), ncclSuccess);
  });
}

TEST_F(Collectives, AllReduceOnOneRankCopies) { ExpectSum<float>(1, 100, ncclFloat); }

TEST_F(Collectives, AllGatherCollectsEveryRanksPart) {
  constexpr size_t kCount = 1000;
  for (const bool in_place : {false, true}) {
    RunRanks(3, [&](Rank& rank) {
      const DeviceMemory receive(rank.rank, 3 * kCount * sizeof(int));
      const DeviceMemory apart(rank.rank, kCount * sizeof(int));
      char* send = in_place ? receive.data() + static_cast<size_t>(rank.rank) * kCount * sizeof(int) : apart.data();
      Upload(send, Values<int>(rank.rank, kCount));
      ASSERT_EQ(Api().ncclAllGather(send, receive.data(), kCount, ncclInt, rank.comm, rank.stream), ncclSuccess);
      rank.Synchronize();
      for (int part = 0; part < 3; ++part) {
        EXPECT_EQ(Download<int>(receive.data() + static_cast<size_t>(part) * kCount * sizeof(int), kCount),
                  Values<int>(part, kCount));
      }
    });
  }
}

TEST_F(Collectives, BroadcastBringsTheRootsBytesToAll) {
  constexpr size_t kCount = 700'000;
  for (const int root : {0, 2}) {
    RunRanks(4, [&](Rank& rank) {
      const DeviceMemory send(rank.rank, kCount * sizeof(float));
      const DeviceMemory receive(rank.rank, kCount * sizeof(float));
      Upload(send.data(), Values<float>(rank.rank, kCount));
      ASSERT_EQ(Api().ncclBroadcast(send.data(), receive.data(), kCount, ncclFloat, root, rank.comm, rank.stream),
                ncclSuccess);
      ASSERT_EQ(Api().ncclBcast(send.data(), kCount, ncclFloat, root, rank.comm, rank.stream), ncclSuccess);
      rank.Synchronize();
      EXPECT_EQ(Download<float>(receive.data(), kCount), Values<float>(root, kCount));
      EXPECT_EQ(Download<float>(send.data(), kCount), Values<float>(root, kCount));
    });
  }
}

TEST_F(Collectives, RunInLaunchOrderOnAnyStreams) {
  RunRanks(2, [](Rank& rank) {
    CUstream other = nullptr;
    ASSERT_EQ(Api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const DeviceMemory memory(rank.rank, 2 * sizeof(int));
    Upload(memory.data(), std::vector<int>{rank.rank, 10 * rank.rank});
    for (int round = 0; round < 20; ++round) {
      char* second = memory.data() + sizeof(int);
      ASSERT_EQ(Api().ncclBcast(memory.data(), 1, ncclInt, round % 2, rank.comm, rank.stream), ncclSuccess);
      ASSERT_EQ(Api().ncclAllReduce(second, second, 1, ncclInt, ncclMax, rank.comm, other), ncclSuccess);
    }
    rank.Synchronize();
    ASSERT_EQ(Api().cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(Download<int>(memory.data(), 2), (std::vector<int>{0, 10}));
    EXPECT_EQ(Api().cuStreamDestroy(other), CUDA_SUCCESS);
  });
}

TEST_F(Collectives, OneThreadDrivesEveryRankWithGroups) {
  constexpr int kRanks = 4;
  std::array<ncclComm_t, kRanks> comms = {};
  ASSERT_EQ(Api().ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  std::array<CUstream, kRanks> streams = {};
  std::vector<std::unique_ptr<CurrentDevice>> devices;
  std::vector<std::unique_ptr<DeviceMemory>> memories;
  for (int rank = 0; rank < kRanks; ++rank) {
    devices.push_back(std::make_unique<CurrentDevice>(rank));
    memories.push_back(std::make_unique<DeviceMemory>(rank, 4096));
    Upload(memories.back()->data(), std::vector<int>{rank + 1});
    ASSERT_EQ(Api().cuStreamCreate(&streams[static_cast<size_t>(rank)], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(Api().ncclGroupStart(), ncclSuccess);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    char* data = memories[rank]->data();
    ASSERT_EQ(Api().ncclAllReduce(data, data, 1, ncclInt, ncclSum, comms[rank], streams[rank]), ncclSuccess);
  }
  ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(Api().ncclGroupEnd(), ncclSuccess);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(Api().cuStreamSynchronize(streams[rank]), CUDA_SUCCESS);
    const CurrentDevice current(static_cast<int>(rank));  // a copy needs the access of its stream's device
    EXPECT_EQ(Download<int>(memories[rank]->data(), 1), std::vector<int>{10});
    ASSERT_EQ(Api().cuStreamDestroy(streams[rank]), CUDA_SUCCESS);
    EXPECT_EQ(Api().ncclCommDestroy(comms[rank]), ncclSuccess);
  }
}

}  // namespace
}  // namespace commpool::internal::testing
