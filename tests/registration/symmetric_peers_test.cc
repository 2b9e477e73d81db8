// Where blocks of a symmetric pool lie on the other ranks: every rank reads every other one's, at one stride, through
// growth, sleep and the end of segments.
#include <string>
#include <vector>

#include "tests/pool/pool_fixture.h"
#include "tests/registration/captured_sum.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

const SleepRequest kDiscarded = {.graphs = LiveGraphs::kDiscarded};

class SymmetricPeers : public SymmetricTest {
 protected:
  Statuses MapPeers() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->MapPeers(); });
  }
  static void MayReadAlone(const Rank& rank, PoolConfiguration& configuration) {
    configuration.backing.grants = Grants::kRead;
    for (int device = 0; device < rank.ranks; ++device) configuration.peers.push_back(device);
  }
  // A block on each rank, of a pool whose segment all ranks have mapped.
  HeldBlocks AllocateMapped(uint64_t reserved_bytes = 2 * kMiB) {
    CreateAndReserve(reserved_bytes);
    ExpectOk(MapPeers());
    return Hold(kMiB);
  }
  Result<PeerPlaces> PeersOf(const std::vector<CUdeviceptr>& blocks, int rank) {
    return PoolOf(group()[rank]).mode().AsSymmetric()->PeersOf(blocks[static_cast<size_t>(rank)]);
  }
  std::vector<CUdeviceptr> FirstOf(const std::vector<CUdeviceptr>& blocks) {
    std::vector<CUdeviceptr> first;
    for (int rank = 0; rank <= last(); ++rank) first.push_back(PeersOf(blocks, rank).value().first);
    return first;
  }
  // The address of another rank's block for this rank.
  CUdeviceptr Peer(const std::vector<CUdeviceptr>& blocks, const Rank& rank, int other) {
    const PeerPlaces places = PeersOf(blocks, rank.number).value();
    EXPECT_EQ(places.ranks, group().size());
    return places.first + static_cast<uint64_t>(other) * places.stride_bytes;
  }
  int NextOf(const Rank& rank) const { return (rank.number + 1) % rank.ranks; }
  // Each rank's number fills this memory.
  void FillWith(const Rank& rank, CUdeviceptr address) {
    Fill(rank.stream, address, 4096, static_cast<uint8_t>(rank.number + 1));
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
  }
  void ExpectFilledBy(int writer, const Rank& reader, CUdeviceptr address) {
    uint64_t wrong = 0;
    Compare(reader.stream, address, 4096, static_cast<uint8_t>(writer + 1), &wrong);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(reader.stream), CUDA_SUCCESS);
    EXPECT_EQ(wrong, 0u) << "rank " << reader.number << " reads what rank " << writer << " wrote";
  }
  // Each rank writes its number, and then reads that of every rank at its address.
  void ExpectEachReadsAll(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) { FillWith(rank, blocks[rank.index()]); });
    ForEach([&](Rank& rank) {
      for (int other = 0; other <= last(); ++other) ExpectFilledBy(other, rank, Peer(blocks, rank, other));
    });
  }
  void ExpectUnmapped(const std::vector<CUdeviceptr>& blocks, const std::string& why) {
    for (int rank = 0; rank <= last(); ++rank) {
      ExpectFailure(PeersOf(blocks, rank).status(), StatusCode::kFailedPrecondition, why);
    }
  }
};

using SymmetricPeersUnderFaults = UnderFaults<SymmetricPeers>;

TEST_F(SymmetricPeers, EachRankReadsWhatTheOthersWrote) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(MapPeers());
  const HeldBlocks first = Hold(kMiB);
  const HeldBlocks second = Hold(kMiB);
  ExpectEachReadsAll(first);
  ExpectEachReadsAll(second);
}

// NCCL maps the memory for its kernels itself, and gives them access of its own.
TEST_F(SymmetricPeers, AreSummedByACollectiveAlsoWherePeersReadAlone) {
  CreateAndReserve(2 * kMiB, MayReadAlone);
  CapturedSum sum(driver(), Allocate(kMiB));
  ForEach([&](Rank& rank) { sum.Capture(rank); });
  ForEach([&](Rank& rank) { sum.Replay(rank, 1); });
  ForEach([&](Rank& rank) { sum.Destroy(rank); });
  Free(sum.blocks());
}

TEST_F(SymmetricPeers, RanksWriteToEachOtherAlsoWherePeersReadAlone) {
  CreateAndReserve(4 * kMiB, MayReadAlone);
  ExpectOk(MapPeers());
  const HeldBlocks blocks = Hold(kMiB);
  ForEach([&](Rank& rank) {
    const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = NextOf(rank)};
    unsigned long long flags = 0;
    EXPECT_EQ(driver().cuda.cuMemGetAccess(&flags, &location, blocks[rank.index()]), CUDA_SUCCESS);
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ) << "by the pool's own addresses";
    FillWith(rank, Peer(blocks, rank, NextOf(rank)));
  });
  ForEach([&](Rank& rank) { ExpectFilledBy((rank.number + last()) % rank.ranks, rank, blocks[rank.index()]); });
}

TEST_F(SymmetricPeers, SegmentsThatCameLaterAreMappedByASecondCall) {
  const HeldBlocks early = CreateAndHold(2 * kMiB, kMiB);
  ExpectUnmapped(early, "call map_peers() on every rank after reserve()");
  ExpectOk(MapPeers());
  const std::vector<CUdeviceptr> places = FirstOf(early);
  ExpectOk(Reserve(8 * kMiB));
  const HeldBlocks late = Hold(6 * kMiB);
  ExpectUnmapped(late, "call map_peers()");
  ExpectOk(MapPeers());
  EXPECT_EQ(FirstOf(early), places);
  ExpectEachReadsAll(early);
  ExpectEachReadsAll(late);
}

TEST_F(SymmetricPeers, AddressesStayInASleepWhichGivesTheMemoryBack) {
  const HeldBlocks blocks = AllocateMapped(64 * kMiB);
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  const uint64_t awake = FreeMemory()[0];
  ExpectOk(Sleep(kDiscarded));
  ExpectUnmapped(blocks, "it is asleep");
  EXPECT_GE(FreeMemory()[0], awake + ReservedBytes(0));
  ExpectOk(Wake(kDiscarded));
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
}

TEST_F(SymmetricPeers, AGraphThatReadsTheOthersReplaysAfterASleep) {
  const HeldBlocks blocks = AllocateMapped();
  std::vector<CUgraphExec> graphs(blocks.size());
  ForEach([&](Rank& rank) {
    const CUdeviceptr next = Peer(blocks, rank, NextOf(rank));
    CUgraph graph = nullptr;
    EXPECT_EQ(driver().cuda.cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    // The next rank's first bytes come behind this rank's.
    EXPECT_EQ(driver().cuda.cuMemcpyDtoDAsync(blocks[rank.index()] + 4096, next, 4096, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuStreamEndCapture(rank.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphInstantiateWithFlags(&graphs[rank.index()], graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
  });
  ExpectOk(Sleep({.graphs = LiveGraphs::kNoCollectives}));
  ExpectOk(Wake({.graphs = LiveGraphs::kNoCollectives}));
  ExpectEachReadsAll(blocks);  // writes anew, and waits for all ranks
  ForEach([&](Rank& rank) {
    EXPECT_EQ(driver().cuda.cuGraphLaunch(graphs[rank.index()], rank.stream), CUDA_SUCCESS);
    ExpectFilledBy(NextOf(rank), rank, blocks[rank.index()] + 4096);
    EXPECT_EQ(driver().cuda.cuGraphExecDestroy(graphs[rank.index()]), CUDA_SUCCESS);
  });
}

TEST_F(SymmetricPeers, ATrimGivesTheMemoryBack) {
  CreateAndReserve(64 * kMiB);
  const uint64_t before = FreeMemory()[0];
  ExpectOk(MapPeers());
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
  EXPECT_GE(FreeMemory()[0], before + 64 * kMiB);
}

TEST_F(SymmetricPeersUnderFaults, AFailureOnOneRankMapsNothingOnAny) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(MapPeers());
  ExpectOk(Reserve(8 * kMiB));
  const HeldBlocks late = Hold(6 * kMiB);
  // Addresses first: those of a try that failed are kept for the next one.
  for (const char* call : {"cuMemAddressReserve", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
                           "cuMemMap", "cuMemSetAccess"}) {
    const InjectedFault one({.call = call, .result = CUDA_ERROR_INVALID_VALUE, .skip = last()});
    ExpectFailure(MapPeers(), StatusCode::kDriverError, call);
    ExpectUnmapped(late, "call map_peers()");
  }
  ExpectOk(MapPeers());
  ExpectEachReadsAll(late);
}

TEST_F(SymmetricPeersUnderFaults, ASleepThatFailsLeavesThemMapped) {
  const HeldBlocks blocks = AllocateMapped();
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  {
    // Behind those of the other ranks' memory.
    const InjectedFault one(
        {.call = "cuMemUnmap", .result = CUDA_ERROR_INVALID_VALUE, .skip = group().size() * group().size()});
    ExpectFailure(Sleep(kDiscarded), StatusCode::kDriverError, "unmapping failed on rank");
  }
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
}

TEST_F(SymmetricPeersUnderFaults, AWakeWhoseMappingFailsIsMadeGoodAtTheSameAddresses) {
  const HeldBlocks blocks = AllocateMapped();
  const std::vector<CUdeviceptr> places = FirstOf(blocks);
  ExpectOk(Sleep(kDiscarded));
  ExpectFailure(With({.call = "cuMemImportFromShareableHandle", .result = CUDA_ERROR_INVALID_VALUE, .skip = last()},
                     [&] { return Wake(kDiscarded); }),
                StatusCode::kDriverError, "call map_peers() again");
  ExpectUnmapped(blocks, "call map_peers()");
  // All ranks go the same ways, also the one that failed.
  ExpectOk(Sleep(kDiscarded));
  ExpectOk(Wake(kDiscarded));
  EXPECT_EQ(FirstOf(blocks), places);
  ExpectEachReadsAll(blocks);
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
  const std::shared_ptr<Pool> alone = MakeFixed("alone");
  EXPECT_EQ(SymmetricMode::Of(*alone, "map_peers").status().code(), StatusCode::kNotSupported);
  alone->Destroy();
}

}  // namespace
}  // namespace commpool::internal::testing
