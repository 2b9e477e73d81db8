// Where blocks of a symmetric pool lie on the other ranks: every rank reads every other one's, at one stride, through
// growth, sleep and the end of segments.
#include <string>
#include <vector>

#include "tests/pool/pool_fixture.h"
#include "tests/registration/captured_sum.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class SymmetricPeers : public SymmetricTest {
 protected:
  Statuses MapPeers() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->MapPeers(); });
  }
  Statuses Sleep(LiveGraphs graphs = LiveGraphs::kDiscarded) {
    return Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), {.graphs = graphs}); });
  }
  Statuses Wake(LiveGraphs graphs = LiveGraphs::kDiscarded) {
    return Run([&](Rank& rank) { return WakeAlone(PoolOf(rank), {.graphs = graphs}); });
  }
  // A block on each rank, of a pool whose segment all ranks have mapped.
  std::vector<CUdeviceptr> AllocateMapped(uint64_t reserved_bytes = 2 * kMiB) {
    CreateAndReserve(reserved_bytes);
    ExpectOk(MapPeers());
    return Allocate(kMiB);
  }
  Result<PeerPlaces> PeersOf(const std::vector<CUdeviceptr>& blocks, int rank) {
    return PoolOf(group()[rank]).mode().AsSymmetric()->PeersOf(blocks[static_cast<size_t>(rank)]);
  }
  std::vector<CUdeviceptr> FirstOf(const std::vector<CUdeviceptr>& blocks) {
    std::vector<CUdeviceptr> first;
    for (int rank = 0; rank <= last(); ++rank) {
      const Result<PeerPlaces> places = PeersOf(blocks, rank);
      EXPECT_TRUE(places.ok()) << places.status().message();
      first.push_back(places.ok() ? places->first : 0);
    }
    return first;
  }
  // Each rank writes its number, and then reads that of every rank at its address.
  void ExpectEachReadsAll(const std::vector<CUdeviceptr>& blocks) {
    ExpectOk(Run([&](Rank& rank) {
      Fill(rank.stream, blocks[static_cast<size_t>(rank.number)], 4096, static_cast<uint8_t>(rank.number + 1));
      return FromCall(driver().cuda.cuStreamSynchronize(rank.stream));
    }));
    ExpectOk(Run([&](Rank& rank) {
      const Result<PeerPlaces> places = PeersOf(blocks, rank.number);
      if (!places.ok()) return places.status();
      EXPECT_EQ(places->ranks, group().size());
      uint64_t wrong = 0;
      for (int other = 0; other <= last(); ++other) {
        const CUdeviceptr there = places->first + static_cast<uint64_t>(other) * places->stride_bytes;
        Compare(rank.stream, there, 4096, static_cast<uint8_t>(other + 1), &wrong);
      }
      const Status status = FromCall(driver().cuda.cuStreamSynchronize(rank.stream));
      EXPECT_EQ(wrong, 0u);
      return status;
    }));
  }
  void ExpectUnmapped(const std::vector<CUdeviceptr>& blocks, const std::string& why) {
    for (int rank = 0; rank <= last(); ++rank) {
      ExpectFailure(PeersOf(blocks, rank).status(), StatusCode::kFailedPrecondition, why);
    }
  }
  uint64_t FreeBytes(int number) {
    const ContextGuard current(driver(), group()[number].context);
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(driver().cuda.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  static Status FromCall(CUresult result) {
    return result == CUDA_SUCCESS ? Status() : Status(StatusCode::kDriverError, std::to_string(result));
  }
};

TEST_F(SymmetricPeers, EachRankReadsWhatTheOthersWrote) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(MapPeers());
  const std::vector<CUdeviceptr> first = Allocate(kMiB);
  const std::vector<CUdeviceptr> second = Allocate(kMiB);
  ExpectEachReadsAll(first);
  ExpectEachReadsAll(second);
  Free(first);
  Free(second);
}

// NCCL maps the memory for its kernels itself, and gives them access of its own.
TEST_F(SymmetricPeers, AreSummedByACollectiveAlsoWherePeersReadAlone) {
  CreateAndReserve(2 * kMiB, [&](const Rank&, PoolConfiguration& configuration) {
    configuration.backing.grants = Grants::kRead;
    for (int device = 0; device <= last(); ++device) configuration.peers.push_back(device);
  });
  CapturedSum sum(driver(), Allocate(kMiB));
  ExpectOk(Run([&](Rank& rank) { return sum.Capture(rank); }));
  ExpectOk(Run([&](Rank& rank) { return sum.Replay(rank, 1); }));
  ExpectOk(Run([&](Rank& rank) { return sum.Destroy(rank); }));
  Free(sum.blocks());
}

TEST_F(SymmetricPeers, RanksWriteToEachOtherAlsoWherePeersReadAlone) {
  CreateAndReserve(4 * kMiB, [&](const Rank&, PoolConfiguration& configuration) {
    configuration.backing.grants = Grants::kRead;
    for (int device = 0; device <= last(); ++device) configuration.peers.push_back(device);
  });
  ExpectOk(MapPeers());
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  const auto next = [&](const Rank& rank) { return (rank.number + 1) % group().size(); };
  ExpectOk(Run([&](Rank& rank) {
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = next(rank)};
    unsigned long long flags = 0;
    const CUdeviceptr own = blocks[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuMemGetAccess(&flags, &location, own), CUDA_SUCCESS);
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ) << "by the pool's own addresses";
    const Result<PeerPlaces> places = PeersOf(blocks, rank.number);
    if (!places.ok()) return places.status();
    Fill(rank.stream, places->first + static_cast<uint64_t>(next(rank)) * places->stride_bytes, 4096,
         static_cast<uint8_t>(rank.number + 1));
    return FromCall(driver().cuda.cuStreamSynchronize(rank.stream));
  }));
  ExpectOk(Run([&](Rank& rank) {
    const int writer = (rank.number + last()) % group().size();
    uint64_t wrong = 1;
    Compare(rank.stream, blocks[static_cast<size_t>(rank.number)], 4096, static_cast<uint8_t>(writer + 1), &wrong);
    const Status status = FromCall(driver().cuda.cuStreamSynchronize(rank.stream));
    EXPECT_EQ(wrong, 0u);
    return status;
  }));
  Free(blocks);
}

TEST_F(SymmetricPeers, SegmentsThatCameLaterAreMappedByASecondCall) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> early = Allocate(kMiB);
  ExpectUnmapped(early, "call map_peers() on every rank after reserve()");
  ExpectOk(MapPeers());
  const std::vector<CUdeviceptr> places = FirstOf(early);
  ExpectOk(Reserve(8 * kMiB));
  const std::vector<CUdeviceptr> late = Allocate(6 * kMiB);
  ExpectUnmapped(late, "call map_peers()");
  ExpectOk(MapPeers());
  EXPECT_EQ(FirstOf(early), places);
  ExpectEachReadsAll(early);
  ExpectEachReadsAll(late);
  Free(early);
  Free(late);
}

TEST_F(SymmetricPeers, AddressesStayInASleepWhichGivesTheMemoryBack) {
  const std::vector<CUdeviceptr> blocks = AllocateMapped(64 * kMiB);
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  const uint64_t awake = FreeBytes(0);
  ExpectOk(Sleep());
  ExpectUnmapped(blocks, "it is asleep");
  EXPECT_GE(FreeBytes(0), awake + ReservedBytes(0));
  ExpectOk(Wake());
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
  Free(blocks);
}

TEST_F(SymmetricPeers, AGraphThatReadsTheOthersReplaysAfterASleep) {
  const std::vector<CUdeviceptr> blocks = AllocateMapped();
  std::vector<CUgraphExec> graphs(blocks.size());
  ExpectOk(Run([&](Rank& rank) {
    const size_t number = static_cast<size_t>(rank.number);
    const Result<PeerPlaces> places = PeersOf(blocks, rank.number);
    if (!places.ok()) return places.status();
    const CUdeviceptr next = places->first + ((number + 1) % blocks.size()) * places->stride_bytes;
    CUgraph graph = nullptr;
    EXPECT_EQ(driver().cuda.cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    // The next rank's first bytes come behind this rank's.
    EXPECT_EQ(driver().cuda.cuMemcpyDtoDAsync(blocks[number] + 4096, next, 4096, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphInstantiateWithFlags(&graphs[number], graph, 0), CUDA_SUCCESS);
    return FromCall(driver().cuda.cuGraphDestroy(graph));
  }));
  ExpectOk(Sleep(LiveGraphs::kNoCollectives));
  ExpectOk(Wake(LiveGraphs::kNoCollectives));
  ExpectEachReadsAll(blocks);  // writes anew, and waits for all ranks
  ExpectOk(Run([&](Rank& rank) {
    const size_t number = static_cast<size_t>(rank.number);
    uint64_t wrong = 0;
    EXPECT_EQ(driver().cuda.cuGraphLaunch(graphs[number], rank.stream), CUDA_SUCCESS);
    Compare(rank.stream, blocks[number] + 4096, 4096, static_cast<uint8_t>((number + 1) % blocks.size() + 1), &wrong);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(wrong, 0u);
    return FromCall(driver().cuda.cuGraphExecDestroy(graphs[number]));
  }));
  Free(blocks);
}

TEST_F(SymmetricPeers, ATrimGivesTheMemoryBack) {
  CreateAndReserve(64 * kMiB);
  const uint64_t before = FreeBytes(0);
  ExpectOk(MapPeers());
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
  EXPECT_GE(FreeBytes(0), before + 64 * kMiB);
}

TEST_F(SymmetricPeers, AFailureOnOneRankMapsNothingOnAny) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  ExpectOk(MapPeers());
  ExpectOk(Reserve(8 * kMiB));
  const std::vector<CUdeviceptr> late = Allocate(6 * kMiB);
  // Addresses first: those of a try that failed are kept for the next one.
  for (const char* call : {"cuMemAddressReserve", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
                           "cuMemMap", "cuMemSetAccess"}) {
    const InjectedFault one({.call = call, .result = CUDA_ERROR_INVALID_VALUE, .skip = last()});
    ExpectFailure(MapPeers(), StatusCode::kDriverError, call);
    ExpectUnmapped(late, "call map_peers()");
  }
  ExpectOk(MapPeers());
  ExpectEachReadsAll(late);
  Free(late);
}

TEST_F(SymmetricPeers, ASleepThatFailsLeavesThemMapped) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const std::vector<CUdeviceptr> blocks = AllocateMapped();
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  {
    // Behind those of the other ranks' memory.
    const InjectedFault one(
        {.call = "cuMemUnmap", .result = CUDA_ERROR_INVALID_VALUE, .skip = group().size() * group().size()});
    ExpectFailure(Sleep(), StatusCode::kDriverError, "unmapping failed on rank");
  }
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
  Free(blocks);
}

TEST_F(SymmetricPeers, AWakeWhoseMappingFailsIsMadeGoodAtTheSameAddresses) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const std::vector<CUdeviceptr> blocks = AllocateMapped();
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  ExpectOk(Sleep());
  {
    const InjectedFault one(
        {.call = "cuMemImportFromShareableHandle", .result = CUDA_ERROR_INVALID_VALUE, .skip = last()});
    ExpectFailure(Wake(), StatusCode::kDriverError, "call map_peers() again");
  }
  ExpectUnmapped(blocks, "call map_peers()");
  // All ranks go the same ways, also the one that failed.
  ExpectOk(Sleep());
  ExpectOk(Wake());
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
  Free(blocks);
}

TEST_F(SymmetricPeers, ARankThatCallsSomethingElseIsNamed) {
  CreateAndReserve(2 * kMiB);
  ExpectFailure(Run([&](Rank& rank) {
                  return rank.number == 0 ? PoolOf(rank).Trim(0).status()
                                          : PoolOf(rank).mode().AsSymmetric()->MapPeers();
                }),
                StatusCode::kDisagreement, "map_peers");
}

TEST_F(SymmetricPeers, APoolWithoutRanksHasNone) {
  ExpectOk(Create());
  PoolConfiguration configuration;
  configuration.name = "alone";
  const Result<PoolHandle> alone = runtime().CreatePool(configuration);
  ASSERT_TRUE(alone.ok());
  const std::shared_ptr<Pool> pool = *runtime().pools().Find(*alone);
  EXPECT_EQ(SymmetricMode::Of(*pool, "map_peers").status().code(), StatusCode::kNotSupported);
  pool->Destroy();
}

}  // namespace
}  // namespace commpool::internal::testing
