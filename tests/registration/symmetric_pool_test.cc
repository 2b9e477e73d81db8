// Symmetric pools without failures: offsets, sums, frees, trimming, the end.
#include <algorithm>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricPoolLife : public SymmetricTest {
 protected:
  template <typename T>
  static void Upload(CUdeviceptr address, const std::vector<T>& values) {
    EXPECT_EQ(SharedDriver()->cuda.cuMemcpyHtoD(address, values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
    EXPECT_EQ(SharedDriver()->cuda.cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // a pageable copy may still run
  }
  template <typename T>
  static std::vector<T> Download(CUdeviceptr address, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(SharedDriver()->cuda.cuMemcpyDtoH(values.data(), address, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  // Every rank writes its number + 1, and all-reduces from one block to another.
  Status AllReduce(const Rank& rank, CUdeviceptr send, CUdeviceptr receive, size_t count) {
    Upload(send, std::vector<float>(count, static_cast<float>(rank.number + 1)));
    Upload(receive, std::vector<float>(count, 0));
    EXPECT_EQ(driver().nccl.ncclAllReduce(reinterpret_cast<void*>(send), reinterpret_cast<void*>(receive), count,
                                          ncclFloat, ncclSum, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const auto sum = static_cast<float>(rank.ranks * (rank.ranks + 1) / 2);
    EXPECT_EQ(Download<float>(receive, count), std::vector<float>(count, sum)) << "rank " << rank.number;
    return Status();
  }
};

bool AllEqual(const std::vector<uint64_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

TEST_F(SymmetricPoolLife, GivesEveryRankTheSameOffsets) {
  CreateAndReserve(8 * kMiB);
  std::vector<std::vector<CUdeviceptr>> all;
  for (const uint64_t bytes : {1 * kKiB, 700 * kKiB, uint64_t{1}, 2 * kMiB}) all.push_back(Allocate(bytes));
  uint64_t previous_end = 0;
  for (const std::vector<CUdeviceptr>& blocks : all) {
    const std::vector<uint64_t> offsets = OffsetsOf(blocks);
    EXPECT_TRUE(AllEqual(offsets));
    EXPECT_GE(offsets[0], previous_end);
    previous_end = offsets[0] + 1;
  }
  for (const std::vector<CUdeviceptr>& blocks : all) Free(blocks);
}

TEST_F(SymmetricPoolLife, ScopedBlocksAreSummedByAnAllReduce) {
  constexpr size_t kCount = 10000;
  CreateAndReserve(4 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    Result<ScopeHandle> scope = runtime().scopes().Begin({.pool = runtime().pools().Find(HandleOf(rank)).value()});
    if (!scope.ok()) return scope.status();
    const CUdeviceptr send = runtime().Allocate(rank.number, kCount * sizeof(float), rank.stream).value();
    const CUdeviceptr receive = runtime().Allocate(rank.number, kCount * sizeof(float), rank.stream).value();
    EXPECT_TRUE(PoolOf(rank).segments().registrations.Find(rank.communicator, send).ok());
    Status status = AllReduce(rank, send, receive, kCount);
    EXPECT_TRUE(runtime().scopes().End(*scope).ok());
    for (const CUdeviceptr block : {send, receive}) EXPECT_TRUE(runtime().Free(block).ok());
    return status;
  }));
}

TEST_F(SymmetricPoolLife, RefusesAProcessWideScope) {
  ExpectOk(Create());
  const Rank& rank = group()[0];
  Result<ScopeHandle> scope = runtime().scopes().Begin(
      {.pool = runtime().pools().Find(HandleOf(rank)).value(), .filter = ScopeFilter::kProcess});
  EXPECT_EQ(scope.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SymmetricPoolLife, ADeferredFreeWaitsForReclaim) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  Free(blocks);
  ExpectFailure(
      Run([&](Rank& rank) { return PoolOf(rank).Allocate(2 * kMiB, KeyOfStream(rank.stream, rank.number)).status(); }),
      StatusCode::kExhausted, "or reclaim() once every rank has freed as much in one piece");
  ExpectOk(Run([&](Rank& rank) {
    Result<uint64_t> reclaimed = PoolOf(rank).mode().Reclaim();
    EXPECT_EQ(reclaimed.value(), 2 * kMiB);
    return Status();
  }));
  EXPECT_EQ(Allocate(2 * kMiB), blocks);
  Free(blocks);
}

TEST_F(SymmetricPoolLife, ABlockThatOneRankKeepsIsReusedByNone) {
  CreateAndReserve(4 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    return rank.number == last() ? Status() : PoolOf(rank).Free(blocks[static_cast<size_t>(rank.number)]);
  }));
  ExpectOk(Reclaim());
  const std::vector<CUdeviceptr> others = Allocate(2 * kMiB);
  EXPECT_TRUE(AllEqual(OffsetsOf(others)));
  for (size_t rank = 0; rank < others.size(); ++rank) EXPECT_NE(others[rank], blocks[rank]);
  ExpectOk(Run([&](Rank& rank) { return rank.number == last() ? PoolOf(rank).Free(blocks.back()) : Status(); }));
  Free(others);
  ExpectOk(Reclaim());
  const std::vector<CUdeviceptr> again = Allocate(4 * kMiB);
  EXPECT_TRUE(AllEqual(OffsetsOf(again)));
  Free(again);
}

TEST_F(SymmetricPoolLife, APairOnOneStreamMakesNoDriverCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  CreateAndReserve(64 * kMiB, Ordered);
  const auto calls_of = [&](int pairs) {
    const uint64_t before = CallCount("*");
    ExpectOk(Run([&](Rank& rank) {
      for (int pair = 0; pair < pairs; ++pair) {
        for (const uint64_t bytes : {uint64_t{512}, kMiB, 8 * kMiB, 48 * kMiB}) {
          const Result<CUdeviceptr> block = PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number));
          Status status = block.ok() ? PoolOf(rank).Free(*block) : block.status();
          if (!status.ok()) return status;
        }
      }
      return Status();
    }));
    return CallCount("*") - before;
  };
  calls_of(1);  // from now on the memory belongs to the stream
  EXPECT_EQ(calls_of(1), calls_of(100)) << "what a rank's thread asks for itself";
}

TEST_F(SymmetricPoolLife, OrderedFreesAreReusedAtOnce) {
  CreateAndReserve(2 * kMiB, Ordered);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  Free(blocks);
  EXPECT_EQ(Allocate(2 * kMiB), blocks);
  Free(blocks);
}

TEST_F(SymmetricPoolLife, ASegmentWhereAnOldOneLayHasWindowsOfItsOwn) {
  constexpr uint64_t kBytes = 4 * kMiB;
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> other = Allocate(2 * kMiB);  // a pool without memory keeps no addresses
  ExpectOk(Reserve(kBytes));
  const std::vector<CUdeviceptr> before = Allocate(kBytes);
  Free(before);
  ExpectOk(Reclaim());
  ExpectOk(Trim(0));
  EXPECT_FALSE(PoolOf(group()[0]).segments().registrations.Find(group()[0].communicator, before[0]).ok());
  ExpectOk(Reserve(kBytes));
  const std::vector<CUdeviceptr> again = Allocate(kBytes);
  EXPECT_EQ(again, before);
  EXPECT_TRUE(AllEqual(OffsetsOf(again)));
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = again[static_cast<size_t>(rank.number)];
    EXPECT_TRUE(PoolOf(rank).segments().registrations.Find(rank.communicator, block).ok());
    return AllReduce(rank, block, block + kBytes / 2, kBytes / 2 / sizeof(float));
  }));
  Free(again);
  Free(other);
}

TEST_F(SymmetricPoolLife, AReserveThatFreeMemoryServesAddsNothing) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(Reserve(3 * kMiB));
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(ReservedBytes(rank), 4 * kMiB);
  ExpectOk(Reserve(6 * kMiB));
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_EQ(ReservedBytes(rank), 10 * kMiB);
    EXPECT_EQ(RegisteredSegments(rank), 2u);
  }
}

TEST_F(SymmetricPoolLife, TrimGivesTheLastSegmentsBackOnEveryRank) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(Run([&](Rank& rank) {
    EXPECT_EQ(PoolOf(rank).Trim(0).value(), 4 * kMiB);
    return Status();
  }));
  EXPECT_EQ(RegisteredSegments(last()), 1u);
  Free(blocks);
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(2 * kMiB));  // the next segment has the same index on all ranks
  const std::vector<CUdeviceptr> again = Allocate(1 * kKiB);
  EXPECT_TRUE(AllEqual(OffsetsOf(again)));
  Free(again);
}

TEST_F(SymmetricPoolLife, AllocationsAndFreesCallNoNccl) {
  CreateAndReserve(2 * kMiB);
  const uint64_t registers = CallCount("ncclCommWindowRegister");
  const uint64_t deregisters = CallCount("ncclCommWindowDeregister");
  const std::vector<CUdeviceptr> blocks = Allocate(1 * kMiB);
  Free(blocks);
  EXPECT_EQ(CallCount("ncclCommWindowRegister"), registers);
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), deregisters);
}

TEST_F(SymmetricPoolLife, ClosesTwice) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Close());
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectOk(Close());
  ExpectFailure(PoolOf(group()[0]).mode().Reserve(2 * kMiB), StatusCode::kFailedPrecondition, "is closed");
}

}  // namespace
}  // namespace commpool::internal::testing
