// Reduce-scatter and reduce, with every type and operation.
#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class ReducingCollectives : public EmulatedNccl {};

// Rank r gets block r of the result, in place or apart.
template <typename T>
void ExpectReduceScatter(int ranks, size_t count, ncclDataType_t type, ncclRedOp_t operation, bool in_place,
                         const std::function<T(size_t)>& expected) {
  RunRanks(ranks, [&](Rank& rank) {
    const size_t whole = count * static_cast<size_t>(ranks);
    const size_t first = count * static_cast<size_t>(rank.rank);
    const DeviceMemory send(rank.rank, whole * sizeof(T));
    const DeviceMemory apart(rank.rank, count * sizeof(T));
    char* const receive = in_place ? send.data() + first * sizeof(T) : apart.data();
    Upload(send.data(), Values<T>(rank.rank, whole));
    ASSERT_EQ(Api().ncclReduceScatter(send.data(), receive, count, type, operation, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    const std::vector<T> got = Download<T>(receive, count);
    for (size_t index = 0; index < count; ++index) ASSERT_EQ(got[index], expected(first + index)) << index;
    if (in_place) return;
    EXPECT_EQ(Download<T>(send.data(), whole), Values<T>(rank.rank, whole));
  });
}

template <typename T>
std::function<T(size_t)> SumOf(int ranks) {
  return [ranks](size_t index) { return static_cast<T>(Value(0, index) * ranks + ranks * (ranks - 1) / 2); };
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
      const DeviceMemory memory(rank.rank, 4096);
      Upload(memory.data(), bits(each.one, 6));
      char* const receive = memory.data() + 2048;
      ASSERT_EQ(Api().ncclReduceScatter(memory.data(), receive, 3, each.type, ncclSum, rank.comm, rank.stream),
                ncclSuccess);
      rank.Synchronize();
      EXPECT_EQ(Download<uint8_t>(receive, static_cast<size_t>(3 * each.bytes)), bits(each.two, 3));
    });
  }
}

TEST_F(ReducingCollectives, ReduceBringsTheResultToTheRootAlone) {
  constexpr size_t kCount = 300'001;
  for (const int root : {0, 2}) {
    RunRanks(3, [&](Rank& rank) {
      const DeviceMemory send(rank.rank, kCount * sizeof(float));
      const DeviceMemory receive(rank.rank, kCount * sizeof(float));
      Upload(send.data(), Values<float>(rank.rank, kCount));
      void* const target = rank.rank == root ? receive.data() : nullptr;  // counts on the root only
      ASSERT_EQ(Api().ncclReduce(send.data(), target, kCount, ncclFloat, ncclSum, root, rank.comm, rank.stream),
                ncclSuccess);
      rank.Synchronize();
      if (rank.rank != root) return;
      const std::vector<float> got = Download<float>(receive.data(), kCount);
      for (size_t index = 0; index < kCount; ++index) ASSERT_EQ(got[index], SumOf<float>(3)(index));
    });
  }
}

TEST_F(ReducingCollectives, ReduceAveragesWholeNumbersInPlace) {
  RunRanks(2, [&](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    Upload(memory.data(), std::vector<int>{3 + rank.rank, 10});
    ASSERT_EQ(Api().ncclReduce(memory.data(), memory.data(), 2, ncclInt, ncclAvg, 1, rank.comm, rank.stream),
              ncclSuccess);
    rank.Synchronize();
    if (rank.rank == 1) {
      EXPECT_EQ(Download<int>(memory.data(), 2), (std::vector<int>{3, 10}));
    }
  });
}

TEST_F(ReducingCollectives, RefuseBadArguments) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
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

}  // namespace
}  // namespace commpool::internal::testing
