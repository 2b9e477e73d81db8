// All-reduce, all-gather and broadcast across rank threads of one process.
#include <array>
#include <cmath>
#include <cstring>

#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class Collectives : public EmulatedNccl {};

template <typename T>
std::function<T(size_t)> SumOf(int ranks) {
  return [ranks](size_t index) { return static_cast<T>(Value(0, index) * ranks + ranks * (ranks - 1) / 2); };
}

template <typename T>
void ExpectElements(const std::vector<T>& got, const std::function<T(size_t)>& expected, size_t first = 0) {
  for (size_t index = 0; index < got.size(); ++index) ASSERT_EQ(got[index], expected(first + index)) << index;
}

// One all-reduce of `count` elements on `ranks` ranks; every element on every rank must equal `expected`.
template <typename T>
void ExpectAllReduce(int ranks, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                     const std::function<T(size_t)>& expected) {
  RunRanks(ranks, [&](Rank& rank) {
    const DeviceMemory send(rank.rank, Values<T>(rank.rank, count));
    const DeviceMemory receive(rank.rank, count * sizeof(T));
    ASSERT_EQ(rank.AllReduce(send.data(), receive.data(), count, type, operation), ncclSuccess);
    ExpectElements(rank.Result<T>(receive.data(), count), expected);
  });
}

template <typename T>
void ExpectSum(int ranks, size_t count, ncclDataType_t type) {
  ExpectAllReduce<T>(ranks, count, type, ncclSum, SumOf<T>(ranks));
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
    const DeviceMemory memory(rank.rank, mine);
    ASSERT_EQ(rank.AllReduce(memory, 2, ncclHalf), ncclSuccess);
    EXPECT_EQ(rank.Result<uint16_t>(memory.data(), 2), (std::vector<uint16_t>{0x4200, 0x6800}));
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
    const DeviceMemory memory(rank.rank, values);
    ASSERT_EQ(rank.AllReduce(memory.data(), memory.data(), kCount, ncclFloat, ncclAvg), ncclSuccess);
    results[static_cast<size_t>(rank.rank)] = rank.Result<float>(memory.data(), kCount);
  });
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(std::memcmp(results[0].data(), results[static_cast<size_t>(rank)].data(), kCount * sizeof(float)), 0);
  }
}

TEST_F(Collectives, AllReduceOfNothingDoesNothing) {
  RunRanks(2, [](Rank& rank) { EXPECT_EQ(rank.AllReduce(nullptr, nullptr, 0, ncclFloat), ncclSuccess); });
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
      std::vector<int> parts;
      for (int part = 0; part < 3; ++part) {
        for (const int value : Values<int>(part, kCount)) parts.push_back(value);
      }
      EXPECT_EQ(rank.Result<int>(receive.data(), 3 * kCount), parts);
    });
  }
}

TEST_F(Collectives, BroadcastBringsTheRootsBytesToAll) {
  constexpr size_t kCount = 700'000;
  for (const int root : {0, 2}) {
    RunRanks(4, [&](Rank& rank) {
      const DeviceMemory send(rank.rank, Values<float>(rank.rank, kCount));
      const DeviceMemory receive(rank.rank, kCount * sizeof(float));
      ASSERT_EQ(Api().ncclBroadcast(send.data(), receive.data(), kCount, ncclFloat, root, rank.comm, rank.stream),
                ncclSuccess);
      ASSERT_EQ(Api().ncclBcast(send.data(), kCount, ncclFloat, root, rank.comm, rank.stream), ncclSuccess);
      EXPECT_EQ(rank.Result<float>(receive.data(), kCount), Values<float>(root, kCount));
      EXPECT_EQ(Download<float>(send.data(), kCount), Values<float>(root, kCount));
    });
  }
}

TEST_F(Collectives, RunInLaunchOrderOnAnyStreams) {
  RunRanks(2, [](Rank& rank) {
    CUstream other = nullptr;
    ASSERT_EQ(Api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const DeviceMemory memory(rank.rank, std::vector<int>{rank.rank, 10 * rank.rank});
    char* const second = memory.data() + sizeof(int);
    for (int round = 0; round < 20; ++round) {
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
    memories.push_back(std::make_unique<DeviceMemory>(rank, std::vector<int>{rank + 1}));
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

// Reduce-scatter and reduce, with every type and operation.

class ReducingCollectives : public EmulatedNccl {};

// Rank r gets block r of the result, in place or apart.
template <typename T>
void ExpectReduceScatter(int ranks, size_t count, ncclDataType_t type, ncclRedOp_t operation, bool in_place,
                         const std::function<T(size_t)>& expected) {
  RunRanks(ranks, [&](Rank& rank) {
    const size_t whole = count * static_cast<size_t>(ranks);
    const size_t first = count * static_cast<size_t>(rank.rank);
    const DeviceMemory send(rank.rank, Values<T>(rank.rank, whole));
    const DeviceMemory apart(rank.rank, count * sizeof(T));
    char* const receive = in_place ? send.data() + first * sizeof(T) : apart.data();
    ASSERT_EQ(Api().ncclReduceScatter(send.data(), receive, count, type, operation, rank.comm, rank.stream),
              ncclSuccess);
    ExpectElements(rank.Result<T>(receive, count), expected, first);
    if (in_place) return;
    EXPECT_EQ(Download<T>(send.data(), whole), Values<T>(rank.rank, whole));
  });
}

TEST_F(ReducingCollectives, ReduceScatterGivesEachRankItsBlock) {
  for (const bool in_place : {false, true}) {
    ExpectReduceScatter<float>(4, 1000, ncclFloat, ncclSum, in_place, SumOf<float>(4));
    ExpectReduceScatter<int32_t>(3, 1, ncclInt32, ncclSum, in_place, SumOf<int32_t>(3));
  }
}

TEST_F(ReducingCollectives, ReduceScatterMovesMoreThanOneSlice) {
  ExpectReduceScatter<float>(3, 300'001, ncclFloat, ncclSum, false, SumOf<float>(3));
  ExpectReduceScatter<double>(2, 200'001, ncclDouble, ncclSum, true, SumOf<double>(2));
}

TEST_F(ReducingCollectives, ReduceScatterOnOneRankCopies) {
  ExpectReduceScatter<float>(1, 100, ncclFloat, ncclSum, false, SumOf<float>(1));
  ExpectReduceScatter<float>(1, 100, ncclFloat, ncclAvg, true, SumOf<float>(1));
}

TEST_F(ReducingCollectives, ReduceScatterKnowsEveryOperation) {
  ExpectReduceScatter<int32_t>(2, 10, ncclInt32, ncclProd, false, [](size_t i) { return Value(0, i) * Value(1, i); });
  ExpectReduceScatter<int64_t>(3, 10, ncclInt64, ncclMax, false, [](size_t i) { return Value(2, i); });
  ExpectReduceScatter<uint8_t>(3, 10, ncclUint8, ncclMin, false,
                               [](size_t i) { return static_cast<uint8_t>(Value(0, i)); });
  ExpectReduceScatter<float>(4, 10, ncclFloat, ncclAvg, false,
                             [](size_t i) { return static_cast<float>(Value(0, i)) + 1.5f; });
  ExpectReduceScatter<int32_t>(4, 10, ncclInt32, ncclAvg, false, [](size_t i) { return (4 * Value(0, i) + 6) / 4; });
}

TEST_F(ReducingCollectives, ReduceScatterAndAllReduceAgreeToTheBitForWholeNumbers) {
  ExpectReduceScatter<int8_t>(4, 7, ncclInt8, ncclSum, false, SumOf<int8_t>(4));
  ExpectReduceScatter<uint32_t>(4, 7, ncclUint32, ncclSum, false, SumOf<uint32_t>(4));
  ExpectReduceScatter<uint64_t>(4, 7, ncclUint64, ncclSum, false, SumOf<uint64_t>(4));
}

// 1 in the 8-bit and 16-bit types; the sum of two ranks is 2.
TEST_F(ReducingCollectives, ReduceScatterAddsShortFloats) {
  struct Case {
    ncclDataType_t type;
    int bytes;
    int one;
    int two;
  };
  for (const Case& each : {Case{ncclHalf, 2, 0x3c00, 0x4000}, Case{ncclBfloat16, 2, 0x3f80, 0x4000},
                           Case{ncclFloat8e4m3, 1, 0x38, 0x40}, Case{ncclFloat8e5m2, 1, 0x3c, 0x40}}) {
    RunRanks(2, [&](Rank& rank) {
      const auto bits = [&](int value, size_t count) {
        std::vector<uint8_t> bytes;
        for (size_t index = 0; index < count; ++index) {
          bytes.push_back(static_cast<uint8_t>(value));
          if (each.bytes == 2) bytes.push_back(static_cast<uint8_t>(value >> 8));
        }
        return bytes;
      };
      const DeviceMemory memory(rank.rank, bits(each.one, 6));
      char* const receive = memory.data() + 2048;
      ASSERT_EQ(Api().ncclReduceScatter(memory.data(), receive, 3, each.type, ncclSum, rank.comm, rank.stream),
                ncclSuccess);
      EXPECT_EQ(rank.Result<uint8_t>(receive, static_cast<size_t>(3 * each.bytes)), bits(each.two, 3));
    });
  }
}

TEST_F(ReducingCollectives, ReduceBringsTheResultToTheRootAlone) {
  constexpr size_t kCount = 300'001;
  for (const int root : {0, 2}) {
    RunRanks(3, [&](Rank& rank) {
      const DeviceMemory send(rank.rank, Values<float>(rank.rank, kCount));
      const DeviceMemory receive(rank.rank, kCount * sizeof(float));
      void* const target = rank.rank == root ? receive.data() : nullptr;  // counts on the root only
      ASSERT_EQ(Api().ncclReduce(send.data(), target, kCount, ncclFloat, ncclSum, root, rank.comm, rank.stream),
                ncclSuccess);
      if (rank.rank != root) return rank.Synchronize();
      ExpectElements(rank.Result<float>(receive.data(), kCount), SumOf<float>(3));
    });
  }
}

TEST_F(ReducingCollectives, ReduceAveragesWholeNumbersInPlace) {
  RunRanks(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{3 + rank.rank, 10});
    ASSERT_EQ(Api().ncclReduce(memory.data(), memory.data(), 2, ncclInt, ncclAvg, 1, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    if (rank.rank == 1) {
      EXPECT_EQ(Download<int>(memory.data(), 2), (std::vector<int>{3, 10}));
    }
  });
}

TEST_F(ReducingCollectives, RefuseBadArguments) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    char* const data = memory.data();
    const auto scatter = [&](const void* send, size_t count, int type, int operation) {
      return Api().ncclReduceScatter(send, data, count, static_cast<ncclDataType_t>(type),
                                     static_cast<ncclRedOp_t>(operation), rank.comm, rank.stream);
    };
    EXPECT_EQ(scatter(nullptr, 1, ncclFloat, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(scatter(data, 1, ncclNumTypes, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(scatter(data, 1, ncclFloat, ncclNumOps), ncclInvalidArgument);
    EXPECT_EQ(scatter(data, SIZE_MAX, ncclFloat, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclReduce(data, data, 1, ncclFloat, ncclSum, 1, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclReduce(data, nullptr, 1, ncclFloat, ncclSum, 0, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(scatter(nullptr, 0, ncclFloat, ncclSum), ncclSuccess);
  });
}

// Pre-multiplied sums: made, used, destroyed, and used wrongly.

class ScaledSums : public EmulatedNccl {
 protected:
  static ncclRedOp_t Make(const Rank& rank, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence) {
    ncclRedOp_t operation = ncclSum;
    EXPECT_EQ(Api().ncclRedOpCreatePreMulSum(&operation, scalar, type, residence, rank.comm), ncclSuccess);
    return operation;
  }
};

TEST_F(ScaledSums, MultiplyEachRanksOwnValuesByItsOwnScalar) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<float>{1, 10});
    auto scalar = static_cast<float>(rank.rank + 1);
    const ncclRedOp_t operation = Make(rank, &scalar, ncclFloat, ncclScalarHostImmediate);
    EXPECT_GE(operation, ncclNumOps);
    scalar = 0;  // was read at once
    ASSERT_EQ(rank.AllReduce(memory.data(), memory.data(), 2, ncclFloat, operation), ncclSuccess);
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclSuccess);  // while the collective runs
    EXPECT_EQ(rank.Result<float>(memory.data(), 2), (std::vector<float>{6, 60}));
  });
}

TEST_F(ScaledSums, ReadADeviceScalarWhenTheCollectiveRuns) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, std::vector<int>{1, 2, 3, 4});
    char* const scalar = memory.data() + 2048;
    Upload(scalar, std::vector<int>{5});
    const ncclRedOp_t operation = Make(rank, scalar, ncclInt, ncclScalarDevice);
    Upload(scalar, std::vector<int>{7});
    ASSERT_EQ(
        Api().ncclReduceScatter(memory.data(), memory.data() + 1024, 2, ncclInt, operation, rank.comm, rank.stream),
        ncclSuccess);
    const int first = 1 + 2 * rank.rank;
    EXPECT_EQ(rank.Result<int>(memory.data() + 1024, 2), (std::vector<int>{14 * first, 14 * (first + 1)}));
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclSuccess);
  });
}

TEST_F(ScaledSums, AreRefusedWithAnotherTypeOrCommunicatorAndOnceDestroyed) {
  RunRanks(1, [](Rank& rank, const DeviceMemory& memory) {
    float scalar = 2;
    const ncclRedOp_t operation = Make(rank, &scalar, ncclFloat, ncclScalarHostImmediate);
    const auto reduce = [&](ncclDataType_t type) {
      return rank.AllReduce(memory.data(), memory.data(), 1, type, operation);
    };
    EXPECT_EQ(reduce(ncclInt), ncclInvalidArgument);
    EXPECT_EQ(reduce(ncclFloat), ncclSuccess);
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclSuccess);
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclInvalidArgument);
    EXPECT_EQ(reduce(ncclFloat), ncclInvalidArgument);
    EXPECT_EQ(Api().ncclRedOpDestroy(ncclSum, rank.comm), ncclInvalidArgument);
    rank.Synchronize();
  });
}

TEST_F(ScaledSums, RefuseBadArguments) {
  RunRanks(1, [](Rank& rank) {
    float scalar = 2;
    ncclRedOp_t operation = ncclSum;
    const auto make = [&](ncclRedOp_t* result, void* place, int type, ncclScalarResidence_t residence) {
      return Api().ncclRedOpCreatePreMulSum(result, place, static_cast<ncclDataType_t>(type), residence, rank.comm);
    };
    EXPECT_EQ(make(nullptr, &scalar, ncclFloat, ncclScalarHostImmediate), ncclInvalidArgument);
    EXPECT_EQ(make(&operation, nullptr, ncclFloat, ncclScalarHostImmediate), ncclInvalidArgument);
    EXPECT_EQ(make(&operation, &scalar, ncclNumTypes, ncclScalarHostImmediate), ncclInvalidArgument);
    EXPECT_EQ(make(&operation, &scalar, ncclFloat, ncclScalarDevice), ncclInvalidArgument);  // not device memory
  });
}

}  // namespace
}  // namespace commpool::internal::testing
