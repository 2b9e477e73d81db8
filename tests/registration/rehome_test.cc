// A symmetric pool moves to another home: fewer ranks after a loss, more when some join, the same after a broken
// deadline. Its segments stay, and its sequence of calls begins anew.
#include <algorithm>

#include "tests/pool/announced_capture.h"
#include "tests/pool/held_work.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Rehome : public SymmetricTest {
 protected:
  void Prepare() override {
    COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
    AllowLeak("reserved addresses");
  }

  Status WakeRank(const Rank& rank) {
    const ContextGuard current(driver(), rank.context);
    return WakeAlone(PoolOf(rank));
  }
  void WakeEachAlone() {
    for (const Rank& rank : group()) ExpectOk({WakeRank(rank)});
  }
  void CloseEachAlone() {
    for (const Rank& rank : group()) {
      ExpectOk({PoolOf(rank).Close()});
      EXPECT_EQ(ReservedBytes(rank.number), 0u) << "rank " << rank.number << " waits for nobody";
    }
  }
  Statuses RehomeTo(const std::vector<ncclComm_t>& next) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Rehome(next[rank.index()]); });
  }
  // Blocks from equal calls lie at equal offsets in windows, and their ranks agree on all calls.
  void ExpectSymmetricFrom(int first) {
    std::vector<uint64_t> offsets(static_cast<size_t>(group().size()));
    ExpectOk(RunFrom(first, [&](Rank& rank) {
      const CUdeviceptr kept = AllocateOn(rank, kMiB).value();
      const CUdeviceptr block = AllocateOn(rank, kMiB / 2).value();
      offsets[rank.index()] = WindowOf(rank, block).value().offset;
      ExpectOk({PoolOf(rank).mode().AsSymmetric()->Verify(), PoolOf(rank).Free(kept), PoolOf(rank).Free(block)});
      return PoolOf(rank).mode().Reclaim().status();
    }));
    EXPECT_EQ(std::count(offsets.begin() + first, offsets.end(), offsets.back()), group().size() - first);
  }
};

TEST_F(Rehome, TheRemainingRanksKeepTheirMemory) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  Free(blocks);  // takes effect, although rank 0 confirms nothing any more
  const uint64_t made = CallCount("cuMemCreate");
  LeaveAll();
  ExpectOk({PoolOf(group()[0]).Close()});
  Connect(1);
  ExpectOk(RehomeFrom(1));
  EXPECT_EQ(CallCount("cuMemCreate"), made);
  EXPECT_EQ(RegisteredSegments(1), 2u);
  ExpectSymmetricFrom(1);
  ExpectOk(RunFrom(1, [&](Rank& rank) { return PoolOf(rank).mode().Reserve(8 * kMiB); }));
  ExpectOk(RunFrom(1, [&](Rank& rank) { return PoolOf(rank).Trim(0).status(); }));
}

TEST_F(Rehome, ARankThatJoinsMakesTheSegmentsThatTheOthersKeep) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(Reserve(6 * kMiB));
  Free(blocks);
  ExpectOk(Trim(10 * kMiB));  // now the numbers of the segments have a gap, or end earlier
  LeaveAll();
  ExpectOk({PoolOf(group()[0]).Close()});
  Connect(0);
  Result<PoolHandle> joined = PoolHandle{0};
  ExpectOk(Run([&](Rank& rank) {
    if (rank.number != 0) return PoolOf(rank).mode().AsSymmetric()->Rehome(rank.communicator);
    joined = runtime().CreatePool(Configured(rank));
    return joined.status();
  }));
  const std::shared_ptr<Pool> pool = runtime().pools().Find(*joined).value();
  const auto mine = [&](Rank& rank) -> Pool& { return rank.number == 0 ? *pool : PoolOf(rank); };
  EXPECT_EQ(pool->Statistics().reserved_bytes.current, ReservedBytes(1));
  EXPECT_EQ(pool->Statistics().registered_segments, RegisteredSegments(1));
  std::vector<uint64_t> offsets(static_cast<size_t>(group().size()));
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = mine(rank).Allocate(3 * kMiB, KeyOfStream(rank.stream, rank.number)).value();
    offsets[rank.index()] = WindowOf(rank, block).value().offset;
    Status status = mine(rank).mode().AsSymmetric()->Verify();
    return status.ok() ? mine(rank).Free(block) : status;
  }));
  for (const uint64_t offset : offsets) EXPECT_EQ(offset, offsets[0]);
  ExpectOk(Run([&](Rank& rank) { return mine(rank).Close(); }));
  ExpectOk({runtime().DestroyPool(*joined)});
}

TEST_F(Rehome, IsRefusedOnAllRanksWhileOneHasBlocks) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB);
  FreeButLast(blocks);
  LeaveAll();
  Connect(0);
  ExpectFailureNaming(RehomeFrom(0), StatusCode::kFailedPrecondition,
                      {LastRank() + " cannot ", "still has 1 live block: free them before rehome()"});
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

// Here to fewer ranks. Each rank has no home then, until it may move.
TEST_F(Rehome, IsRefusedWhileACommunicatorHasWindows) {
  CreateAndReserve(2 * kMiB);
  const std::vector<ncclComm_t> old = Homes();
  ExpectOk({LeaveHome(group()[0]), PoolOf(group()[0]).Close()});
  Connect(1);
  const auto refuse = [&](const std::function<Status(SymmetricMode&, ncclComm_t)>& call, const char* why) {
    Statuses statuses =
        RunFrom(1, [&](Rank& rank) { return call(*PoolOf(rank).mode().AsSymmetric(), rank.communicator); });
    statuses.erase(statuses.begin());
    ExpectFailure(statuses, StatusCode::kFailedPrecondition, why);
  };
  refuse(&SymmetricMode::Rehome, "still registered with communicators");
  const char* const why = "it has no home: the last rehome failed; rehome() again or close()";
  refuse([](SymmetricMode& mode, ncclComm_t) { return mode.Reserve(4 * kMiB); }, why);
  refuse(&SymmetricMode::RegisterWith, why);
  ExpectOk(RunFrom(1, [&](Rank& rank) { return PoolOf(rank).mode().Deregister(old[rank.index()]); }));
  Abort({old.begin() + 1, old.end()});
  ExpectOk(RehomeFrom(1));
  ExpectSymmetricFrom(1);
}

TEST_F(Rehome, IsRefusedWhileAGraphLivesThatCapturedWithThePool) {
  CreateAndReserve(2 * kMiB);
  Rank& rank = group()[0];
  AnnouncedCapture graph;
  {
    const ContextGuard current(driver(), rank.context);
    ExpectOk({graph.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED), graph.End()});
  }
  ExpectFailure(PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive),
                StatusCode::kFailedPrecondition, "graph");
  ExpectOk(Run([&](Rank& each) {
    EXPECT_EQ(driver().nccl.ncclCommAbort(each.communicator), ncclSuccess);
    return PoolOf(each).mode().AbandonCommunicator(std::exchange(each.communicator, nullptr), CommunicatorLife::kEnded);
  }));
  AllowLeak("physical memory");  // the graph had to go first
  Connect(0);
  ExpectFailure(RehomeFrom(0), StatusCode::kFailedPrecondition, "graph");
  graph.DestroyGraph();
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, EndsADivergence) {
  CreateAndReserve(2 * kMiB);
  std::vector<CUdeviceptr> blocks(static_cast<size_t>(group().size()));
  ForEach([&](Rank& rank) { blocks[rank.index()] = AllocateOn(rank, rank.number == 0 ? kMiB : kMiB / 2).value(); });
  ExpectFailure(Verify(), StatusCode::kDisagreement, "made allocate");
  Free(blocks);
  MoveHome();
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, IsTheWayOutAfterADeadlineBrokeTheChannel) {
  CreateAndReserve(2 * kMiB, Deadline(1000));
  ExpectFailure(Run([&](Rank& rank) {
                  return rank.number == 0 ? Status(StatusCode::kDeadlineExceeded, "close() or rehome()")
                                          : PoolOf(rank).mode().Reserve(4 * kMiB);
                }),
                StatusCode::kDeadlineExceeded, "close() or rehome()");
  MoveHome();
  ExpectSymmetricFrom(0);
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(Rehome, IsRefusedOnAllRanksWhileADeviceStaysBusy) {
  // The others would not wait for the last one's own deadline.
  ExpectOk(Create([&](const Rank& rank, PoolConfiguration& configuration) {
    configuration.deadline_ms = rank.number == last() ? 5000 : 4000;
  }));
  ExpectOk(Abandon(Homes(), CommunicatorLife::kAlive));
  HeldStream held(driver().cuda, group()[last()].stream);
  ExpectFailure(RehomeFrom(0), StatusCode::kDeadlineExceeded,
                "device " + std::to_string(last()) + " is still busy after 2500 ms");
  held.End();
  ExpectOk(RehomeFrom(0));
}

// Rank 0's free waits for the others on, who know nothing of its try.
TEST_F(Rehome, ThatMeetsNobodyAppliesNoFrees) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB, Deadline(1000));
  ExpectOk(Deregister(Homes()));
  ExpectOk(Run([&](Rank& rank) { return rank.number == 1 ? Status() : PoolOf(rank).Free(blocks[rank.index()]); }));
  const std::vector<ncclComm_t> others = group().ConnectFrom(0);
  ExpectFailure({Run([&](Rank& rank) {
                  return rank.number == 0 ? PoolOf(rank).mode().AsSymmetric()->Rehome(others[0]) : Status();
                })[0]},
                StatusCode::kDeadlineExceeded, "rehome");
  Abort(others);
  EXPECT_EQ(StatisticsOf(0).pending_bytes, kMiB);
  ExpectOk({PoolOf(group()[1]).Free(blocks[1])});
  ExpectOk(Reclaim());
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(StatisticsOf(rank).pending_bytes, 0u) << rank;
}

TEST_F(Rehome, APoolThatSleepsIsWokenByEachRankForItselfBefore) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB);
  WriteNumbers(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  LeaveAll();
  Connect(0);
  ExpectFailure(RehomeFrom(0), StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  ExpectFailure(With({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY}, [&] { return WakeRank(group()[0]); }),
                StatusCode::kOutOfMemory, "wake: waking 2 MiB: cuMemCreate of 2 MiB");
  EXPECT_TRUE(PoolOf(group()[0]).basis().life.asleep());
  WakeEachAlone();
  ExpectNumbers(blocks);
  EXPECT_EQ(RegisteredSegments(0), 0u);
  Free(blocks);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, IsTheWayOutWhereARankStayedAsleepWhileTheOthersWoke) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB, Deadline(1000));
  WriteNumbers(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  ExpectFailure(RunButLast([&](Rank& rank) { return WakeAlone(PoolOf(rank)); }), StatusCode::kDeadlineExceeded,
                LastRank() + ": ");
  for (Rank& rank : group()) EXPECT_TRUE(PoolOf(rank).basis().life.asleep());
  LeaveAll();
  WakeEachAlone();
  ExpectNumbers(blocks);
  Free(blocks);
  Connect(0);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, APoolThatSleepsMayBeClosedByEachRankForItself) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Sleep());
  LeaveAll();
  CloseEachAlone();
  Connect(0);  // needed at the fixture's end
}

TEST_F(Rehome, ARankThatCannotMakeTheSegmentsFailsAllRanksAndTheyKeepTheirs) {
  CreateAndReserve(2 * kMiB);
  LeaveAll();
  ExpectOk({PoolOf(group()[0]).Close()});
  Connect(0);
  ExpectFailure(With({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY},
                     [&] {
                       return Run([&](Rank& rank) {
                         return rank.number == 0 ? runtime().CreatePool(Configured(rank)).status()
                                                 : PoolOf(rank).mode().AsSymmetric()->Rehome(rank.communicator);
                       });
                     }),
                StatusCode::kOutOfMemory, "making the pool's 1 segments");
  for (int number = 1; number <= last(); ++number) {
    EXPECT_EQ(ReservedBytes(number), 2 * kMiB);
    EXPECT_EQ(RegisteredSegments(number), 0u);
  }
}

TEST_F(Rehome, TheNewHomeTakesPartInACloseAndIsLeftLikeTheFirst) {
  CreateAndReserve(2 * kMiB);
  MoveHome();
  ExpectOk(Deregister(Homes()));
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  FreeButLast(blocks);
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, LastRank() + " cannot close");
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  LeaveAll();
  CloseEachAlone();
}

// All ranks left home. If they cannot reach a next home, the pool has none, and each rank closes it alone.
TEST_F(Rehome, APoolThatFoundNoNewHomeIsClosedAlone) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Deregister(Homes()));
  const CUdeviceptr block = AllocateOn(group()[0], kMiB).value();
  ExpectFailure(RehomeTo(Another()), StatusCode::kFailedPrecondition,
                "rank 0 cannot rehome: it still has 1 live block");
  ExpectOk({PoolOf(group()[0]).Free(block)});
  CloseEachAlone();
}

TEST_F(Rehome, APoolThatIsNotSymmetricHasNoHome) {
  const std::shared_ptr<Pool> fixed = MakeFixed();
  ExpectFailure(SymmetricMode::Of(*fixed, "rehome").status(), StatusCode::kNotSupported, "is not symmetric");
  ExpectOk({runtime().DestroyPool(fixed->handle())});
}

}  // namespace
}  // namespace commpool::internal::testing
