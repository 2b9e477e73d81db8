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
  void AllReduce(const Rank& rank, CUdeviceptr send, CUdeviceptr receive, size_t count) {
    Upload(send, std::vector<float>(count, static_cast<float>(rank.number + 1)));
    Upload(receive, std::vector<float>(count, 0));
    EXPECT_EQ(driver().nccl.ncclAllReduce(reinterpret_cast<void*>(send), reinterpret_cast<void*>(receive), count,
                                          ncclFloat, ncclSum, rank.communicator, rank.stream),
              ncclSuccess);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const auto sum = static_cast<float>(rank.ranks * (rank.ranks + 1) / 2);
    EXPECT_EQ(Download<float>(receive, count), std::vector<float>(count, sum)) << "rank " << rank.number;
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
  ForEach([&](Rank& rank) {
    const ScopeHandle scope =
        runtime().scopes().Begin({.pool = runtime().pools().Find(HandleOf(rank)).value()}).value();
    const CUdeviceptr send = runtime().Allocate(rank.number, kCount * sizeof(float), rank.stream).value();
    const CUdeviceptr receive = runtime().Allocate(rank.number, kCount * sizeof(float), rank.stream).value();
    EXPECT_TRUE(WindowOf(rank, send));
    AllReduce(rank, send, receive, kCount);
    ExpectOk({runtime().scopes().End(scope), runtime().Free(send), runtime().Free(receive)});
  });
}

TEST_F(SymmetricPoolLife, RefusesAProcessWideScope) {
  ExpectOk(Create());
  EXPECT_EQ(runtime()
                .scopes()
                .Begin({.pool = runtime().pools().Find(HandleOf(group()[0])).value(), .filter = ScopeFilter::kProcess})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SymmetricPoolLife, ADeferredFreeWaitsForReclaim) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB);
  Free(blocks);
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, 2 * kMiB).status(); }), StatusCode::kExhausted,
                "or reclaim() once every rank has freed as much in one piece");
  ForEach([&](Rank& rank) { EXPECT_EQ(PoolOf(rank).mode().Reclaim().value(), 2 * kMiB); });
  EXPECT_EQ(Allocate(2 * kMiB), blocks);
  Free(blocks);
}

TEST_F(SymmetricPoolLife, ABlockThatOneRankKeepsIsReusedByNone) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(4 * kMiB, 2 * kMiB);
  FreeButLast(blocks);
  ExpectOk(Reclaim());
  const std::vector<CUdeviceptr> others = Allocate(2 * kMiB);
  EXPECT_TRUE(AllEqual(OffsetsOf(others)));
  for (size_t rank = 0; rank < others.size(); ++rank) EXPECT_NE(others[rank], blocks[rank]);
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  Free(others);
  ExpectOk(Reclaim());
  EXPECT_TRUE(AllEqual(OffsetsOf(Hold(4 * kMiB))));
}

TEST_F(SymmetricPoolLife, APairOnOneStreamMakesNoDriverCall) {
  COMMPOOL_REQUIRE_EMULATOR("it counts the driver's calls");
  CreateAndReserve(64 * kMiB, Ordered);
  const auto calls_of = [&](int pairs) {
    const uint64_t before = CallCount("*");
    ForEach([&](Rank& rank) {
      for (int pair = 0; pair < pairs; ++pair) {
        for (const uint64_t bytes : {uint64_t{512}, kMiB, 8 * kMiB, 48 * kMiB}) {
          ExpectOk({AllocateAndFreeOn(rank, bytes)});
        }
      }
    });
    return CallCount("*") - before;
  };
  calls_of(1);  // from now on the memory belongs to the stream
  EXPECT_EQ(calls_of(1), calls_of(100)) << "what a rank's thread asks for itself";
}

TEST_F(SymmetricPoolLife, OrderedFreesAreReusedAtOnce) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB, Ordered);
  Free(blocks);
  EXPECT_EQ(Allocate(2 * kMiB), blocks);
  Free(blocks);
}

TEST_F(SymmetricPoolLife, ASegmentWhereAnOldOneLayHasWindowsOfItsOwn) {
  constexpr uint64_t kBytes = 4 * kMiB;
  CreateAndReserve(2 * kMiB);
  const HeldBlocks other = Hold(2 * kMiB);  // a pool without memory keeps no addresses
  ExpectOk(Reserve(kBytes));
  const std::vector<CUdeviceptr> before = Allocate(kBytes);
  Free(before);
  ExpectOk(Reclaim());
  ExpectOk(Trim(0));
  EXPECT_FALSE(runtime().windows().Find(group()[0].communicator, before[0]));
  ExpectOk(Reserve(kBytes));
  const std::vector<CUdeviceptr> again = Allocate(kBytes);
  EXPECT_EQ(again, before);
  EXPECT_TRUE(AllEqual(OffsetsOf(again)));
  ForEach([&](Rank& rank) {
    const CUdeviceptr block = again[rank.index()];
    EXPECT_TRUE(WindowOf(rank, block));
    AllReduce(rank, block, block + kBytes / 2, kBytes / 2 / sizeof(float));
  });
  Free(again);
}

TEST_F(SymmetricPoolLife, AReserveThatFreeMemoryServesAddsNothing) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(Reserve(3 * kMiB));
  ExpectOnAll(4 * kMiB, 1);
  ExpectOk(Reserve(6 * kMiB));
  ExpectOnAll(10 * kMiB, 2);
}

TEST_F(SymmetricPoolLife, TrimGivesTheLastSegmentsBackOnEveryRank) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  ForEach([&](Rank& rank) { EXPECT_EQ(PoolOf(rank).Trim(0).value(), 4 * kMiB); });
  EXPECT_EQ(RegisteredSegments(last()), 1u);
  Free(blocks);
  ExpectOk(Trim(0));
  ExpectOnAll(0, 0);
  ExpectOk(Reserve(2 * kMiB));  // the next segment has the same index on all ranks
  EXPECT_TRUE(AllEqual(OffsetsOf(Hold(1 * kKiB))));
}

TEST_F(SymmetricPoolLife, AllocationsAndFreesCallNoNccl) {
  CreateAndReserve(2 * kMiB);
  const uint64_t registers = CallCount("ncclCommWindowRegister");
  const uint64_t deregisters = CallCount("ncclCommWindowDeregister");
  Free(Allocate(kMiB));
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

// granularity_bytes on symmetric pools: every rank's segments are multiples of it, and ranks must ask for the same.

using SymmetricGranularity = SymmetricTest;

TEST_F(SymmetricGranularity, RoundsEverySegmentUp) {
  CreateAndReserve(2 * kMiB,
                   [](const Rank&, PoolConfiguration& configuration) { configuration.granularity_bytes = 8 * kMiB; });
  ExpectOnAll(8 * kMiB, 1);
  ExpectOk(Reserve(9 * kMiB));
  ExpectOnAll(24 * kMiB, 2);
}

TEST_F(SymmetricGranularity, IsComparedBetweenRanks) {
  ExpectFailure(Create([&](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == last()) configuration.granularity_bytes = 8 * kMiB;
                }),
                StatusCode::kDisagreement, "granularity: rank 0 default, rank ");
}

// A device's limit also holds for symmetric pools: a rank without room fails the step on all ranks.

class SymmetricLimit : public SymmetricTest {
 protected:
  // Every rank's device has a limit.
  void CreateLimited() {
    ExpectOk(Create());
    for (int rank = 0; rank <= last(); ++rank) Account(rank).SetLimit(32 * kMiB);
  }
  void ExpectRoom(uint64_t bytes) {
    for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(Account(rank).Room(), bytes) << "rank " << rank;
  }
};

TEST_F(SymmetricLimit, OfOneRankFailsAReserveOnAllAndThePoolIsAsBefore) {
  CreateLimited();
  ExpectOk(Reserve(4 * kMiB));
  Account(last()).SetLimit(8 * kMiB);
  ExpectFailure(Reserve(16 * kMiB), StatusCode::kOutOfMemory, "the limit of device " + std::to_string(last()));
  ExpectOnAll(4 * kMiB, 1);
  EXPECT_EQ(Account(0).Room(), 28 * kMiB);
  Account(last()).SetLimit(32 * kMiB);
  ExpectOk(Reserve(16 * kMiB));
  ExpectRoom(12 * kMiB);
}

TEST_F(SymmetricLimit, IsSharedWithFixedPools) {
  CreateLimited();
  ExpectOk(Reserve(24 * kMiB));
  const PoolHandle fixed = MakeFixed()->handle();
  ExpectFailure(runtime().AllocateFrom(fixed, 16 * kMiB, nullptr).status(), StatusCode::kOutOfMemory,
                "the limit of device 0");
  ExpectOk(Trim(0));
  const CUdeviceptr block = runtime().AllocateFrom(fixed, 16 * kMiB, nullptr).value();
  ExpectFailure(Reserve(24 * kMiB), StatusCode::kOutOfMemory, "the limit of device 0");
  ExpectOk({runtime().Free(block), runtime().DestroyPool(fixed)});
}

TEST_F(SymmetricLimit, GetsBackWhatCloseGivesBack) {
  CreateLimited();
  ExpectOk(Reserve(24 * kMiB));
  ExpectOk(Close());
  ExpectRoom(32 * kMiB);
}

TEST_F(SymmetricLimit, LosesNothingByAStepThatFails) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateLimited();
  ExpectFailure(
      With({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1}, [&] { return Reserve(4 * kMiB); }),
      StatusCode::kOutOfMemory, "making a segment of 4 MiB failed on rank ");
  ExpectRoom(32 * kMiB);
  ExpectFailure(With({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = group().size()},
                     [&] { return Reserve(4 * kMiB); }),
                StatusCode::kCommunicatorError, "registering a segment of 4 MiB failed on rank ");
  ExpectRoom(32 * kMiB);
}

// Symmetric pools of programs whose streams die: no rank asks a stream, and none takes another block than the others.

class SymmetricStreams : public SymmetricTest {
 protected:
  static void MayDie(const Rank&, PoolConfiguration& configuration) { configuration.streams = Streams::kMayDie; }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(SharedDriver()->cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
  }
  static void Destroy(CUstream stream) { EXPECT_EQ(SharedDriver()->cuda.cuStreamDestroy(stream), CUDA_SUCCESS); }
  // Allocates on a stream, writes, destroys the stream and frees, in this order.
  Status UseOnce(const Rank& rank) {
    const CUstream stream = NewStream();
    const Result<CUdeviceptr> block = runtime().AllocateFrom(HandleOf(rank), kMiB, stream);
    if (block.ok()) {
      EXPECT_EQ(driver().cuda.cuMemsetD8Async(*block, 1, kMiB, stream), CUDA_SUCCESS);
    }
    Destroy(stream);
    return block.ok() ? runtime().Free(*block) : block.status();
  }
};

TEST_F(SymmetricStreams, ThatDiedGiveTheirMemoryInAReclaimThatWaits) {
  CreateAndReserve(2 * kMiB, MayDie);
  for (int step = 0; step < 5; ++step) {
    ExpectOk(Run([&](Rank& rank) { return UseOnce(rank); }));
    ExpectOk(Reclaim());
    for (const CUdeviceptr whole : Allocate(2 * kMiB)) EXPECT_TRUE(runtime().Free(whole).ok());
    ExpectOk(Reclaim());
  }
}

TEST_F(SymmetricStreams, ThatWereRecordedForABlockAndDiedAreWaitedForTheSameWay) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB, MayDie);
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = blocks[rank.index()];
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    const CUstream reader = NewStream();
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, reader), CUDA_SUCCESS);
    Status status = runtime().RecordStream(block, reader);
    Destroy(reader);
    return status.ok() ? runtime().Free(block) : status;
  }));
  ExpectOk(Reclaim());
  Free(Allocate(2 * kMiB));
}

TEST_F(SymmetricStreams, HaveToBePromisedWhereFreesAreOrdered) {
  CreateAndReserve(2 * kMiB, [](const Rank& rank, PoolConfiguration& configuration) {
    MayDie(rank, configuration);
    configuration.frees = engine::FreeOrder::kOrdered;
  });
  ExpectFailure(Run([&](Rank& rank) { return UseOnce(rank); }), StatusCode::kFailedPrecondition,
                "make the pool with the option streams = outlive");
  ForEach([&](Rank& rank) {
    const CUstream stream = NewStream();
    ExpectOk({runtime().PromiseStream(stream)});
    const CUdeviceptr block = runtime().AllocateFrom(HandleOf(rank), kMiB, stream).value();
    ExpectOk({runtime().Free(block), runtime().ReleaseStream(stream)});
    Destroy(stream);
  });
}

}  // namespace
}  // namespace commpool::internal::testing
