// Pre-multiplied sums: made, used, destroyed, and used wrongly.
#include "tests/emulator/nccl/harness.h"

namespace commpool::internal::testing {
namespace {

class ScaledSums : public EmulatedNccl {};

TEST_F(ScaledSums, MultiplyEachRanksOwnValuesByItsOwnScalar) {
  RunRanks(3, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    Upload(memory.data(), std::vector<float>{1, 10});
    auto scalar = static_cast<float>(rank.rank + 1);
    ncclRedOp_t operation = ncclSum;
    ASSERT_EQ(Api().ncclRedOpCreatePreMulSum(&operation, &scalar, ncclFloat, ncclScalarHostImmediate, rank.comm),
              ncclSuccess);
    EXPECT_GE(operation, ncclNumOps);
    scalar = 0;  // was read at once
    ASSERT_EQ(Api().ncclAllReduce(memory.data(), memory.data(), 2, ncclFloat, operation, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclSuccess);  // while the collective runs
    rank.Synchronize();
    EXPECT_EQ(Download<float>(memory.data(), 2), (std::vector<float>{6, 60}));
  });
}

TEST_F(ScaledSums, ReadADeviceScalarWhenTheCollectiveRuns) {
  RunRanks(2, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    char* const scalar = memory.data() + 2048;
    Upload(memory.data(), std::vector<int>{1, 2, 3, 4});
    Upload(scalar, std::vector<int>{5});
    ncclRedOp_t operation = ncclSum;
    ASSERT_EQ(Api().ncclRedOpCreatePreMulSum(&operation, scalar, ncclInt, ncclScalarDevice, rank.comm), ncclSuccess);
    Upload(scalar, std::vector<int>{7});
    ASSERT_EQ(
        Api().ncclReduceScatter(memory.data(), memory.data() + 1024, 2, ncclInt, operation, rank.comm, rank.stream),
        ncclSuccess);
    rank.Synchronize();
    const int first = 1 + 2 * rank.rank;
    EXPECT_EQ(Download<int>(memory.data() + 1024, 2), (std::vector<int>{14 * first, 14 * (first + 1)}));
    EXPECT_EQ(Api().ncclRedOpDestroy(operation, rank.comm), ncclSuccess);
  });
}

TEST_F(ScaledSums, AreRefusedWithAnotherTypeOrCommunicatorAndOnceDestroyed) {
  RunRanks(1, [](Rank& rank) {
    const DeviceMemory memory(rank.rank, 4096);
    float scalar = 2;
    ncclRedOp_t operation = ncclSum;
    const auto reduce = [&](ncclDataType_t type) {
      return Api().ncclAllReduce(memory.data(), memory.data(), 1, type, operation, rank.comm, rank.stream);
    };
    ASSERT_EQ(Api().ncclRedOpCreatePreMulSum(&operation, &scalar, ncclFloat, ncclScalarHostImmediate, rank.comm),
              ncclSuccess);
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
