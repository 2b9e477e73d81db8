// A symmetric pool moves to another home: fewer ranks after a loss, more when some join, the same after a broken
// deadline. Its segments stay, and its sequence of calls begins anew.
#include "tests/pool/announced_capture.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class Rehome : public SymmetricTest {
 protected:
  void SetUp() override {
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
    AllowLeak("reserved addresses");
  }

  Status WakeRank(int number) {
    const ContextGuard current(driver(), group()[number].context);
    return WakeAlone(PoolOf(group()[number]));
  }
  // Writes each rank's number into its block.
  void WriteNumbers(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      const CUdeviceptr block = blocks[static_cast<size_t>(rank.number)];
      EXPECT_EQ(driver().cuda.cuMemcpyHtoD(block, &rank.number, sizeof(int)), CUDA_SUCCESS);
    });
  }
  void ExpectNumbers(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      int number = -1;
      const CUdeviceptr block = blocks[static_cast<size_t>(rank.number)];
      EXPECT_EQ(driver().cuda.cuMemcpyDtoH(&number, block, sizeof(int)), CUDA_SUCCESS);
      EXPECT_EQ(number, rank.number);
    });
  }
  // Blocks from equal calls lie at equal offsets in windows, and their ranks agree on all calls.
  void ExpectSymmetricFrom(int first) {
    std::vector<uint64_t> offsets(static_cast<size_t>(group().size()));
    ExpectOk(RunFrom(first, [&](Rank& rank) {
      Pool& pool = PoolOf(rank);
      const CUdeviceptr kept = pool.Allocate(kMiB, KeyOfStream(rank.stream, rank.number)).value();
      const CUdeviceptr block = pool.Allocate(kMiB / 2, KeyOfStream(rank.stream, rank.number)).value();
      offsets[static_cast<size_t>(rank.number)] = runtime().windows().Find(rank.communicator, block).value().offset;
      Status status = pool.mode().AsSymmetric()->Verify();
      for (const CUdeviceptr each : {kept, block}) {
        if (status.ok()) status = pool.Free(each);
      }
      if (status.ok()) status = pool.mode().Reclaim().status();
      return status;
    }));
    for (int number = first; number <= last(); ++number) {
      EXPECT_EQ(offsets[static_cast<size_t>(number)], offsets[static_cast<size_t>(last())]);
    }
  }
};

TEST_F(Rehome, TheRemainingRanksKeepTheirMemory) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
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
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
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
    offsets[static_cast<size_t>(rank.number)] = runtime().windows().Find(rank.communicator, block).value().offset;
    Status status = mine(rank).mode().AsSymmetric()->Verify();
    return status.ok() ? mine(rank).Free(block) : status;
  }));
  for (const uint64_t offset : offsets) EXPECT_EQ(offset, offsets[0]);
  ExpectOk(Run([&](Rank& rank) { return mine(rank).Close(); }));
  ExpectOk({runtime().DestroyPool(*joined)});
}

TEST_F(Rehome, IsRefusedOnAllRanksWhileOneHasBlocks) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  for (int number = 0; number < last(); ++number) {
    ExpectOk({PoolOf(group()[number]).Free(blocks[static_cast<size_t>(number)])});
  }
  LeaveAll();
  Connect(0);
  const std::string refused = "rank " + std::to_string(last()) + " cannot ";
  const Statuses statuses = RehomeFrom(0);
  ExpectFailure(statuses, StatusCode::kFailedPrecondition, refused);
  ExpectFailure(statuses, StatusCode::kFailedPrecondition, "still has 1 live block: free them before rehome()");
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, IsRefusedWhileACommunicatorHasWindows) {
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> next = group().ConnectFrom(0);
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).mode().AsSymmetric()->Rehome(next[static_cast<size_t>(rank.number)]);
                }),
                StatusCode::kFailedPrecondition, "still registered with communicators");
  ExpectOk(Run([&](Rank& rank) { return LeaveHome(rank); }));
  for (Rank* rank = &group()[0]; rank <= &group()[last()]; ++rank) {
    rank->communicator = next[static_cast<size_t>(rank->number)];
  }
  ExpectOk(RehomeFrom(0));
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
  ForEach([&](Rank& rank) {
    const uint64_t bytes = rank.number == 0 ? kMiB : kMiB / 2;
    blocks[static_cast<size_t>(rank.number)] =
        PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number)).value();
  });
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); }), StatusCode::kDisagreement,
                "made allocate");
  Free(blocks);
  LeaveAll();
  Connect(0);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, IsTheWayOutAfterADeadlineBrokeTheChannel) {
  CreateAndReserve(2 * kMiB, [](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  ExpectFailure(Run([&](Rank& rank) {
                  return rank.number == 0 ? Status(StatusCode::kDeadlineExceeded, "close() or rehome()")
                                          : PoolOf(rank).mode().Reserve(4 * kMiB);
                }),
                StatusCode::kDeadlineExceeded, "close() or rehome()");
  LeaveAll();
  Connect(0);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
  ExpectOk(Reserve(4 * kMiB));
}

// Rank 0's free waits for the others on, who know nothing of its try.
TEST_F(Rehome, ThatMeetsNobodyAppliesNoFrees) {
  CreateAndReserve(2 * kMiB, [](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));
  ExpectOk(
      RunFrom(1, [&](Rank& rank) { return rank.number == 1 ? Status() : PoolOf(rank).Free(blocks.at(rank.number)); }));
  ExpectOk({PoolOf(group()[0]).Free(blocks[0])});
  const std::vector<ncclComm_t> others = group().ConnectFrom(0);
  {
    const ContextGuard current(driver(), group()[0].context);
    ExpectFailure({PoolOf(group()[0]).mode().AsSymmetric()->Rehome(others[0])}, StatusCode::kDeadlineExceeded,
                  "rehome");
  }
  for (const ncclComm_t other : others) EXPECT_EQ(driver().nccl.ncclCommAbort(other), ncclSuccess);
  EXPECT_EQ(PoolOf(group()[0]).Statistics().pending_bytes, kMiB);
  ExpectOk({PoolOf(group()[1]).Free(blocks[1])});
  ExpectOk(Reclaim());
  for (int number = 0; number <= last(); ++number) {
    EXPECT_EQ(PoolOf(group()[number]).Statistics().pending_bytes, 0u) << number;
  }
}

TEST_F(Rehome, APoolThatSleepsIsWokenByEachRankForItselfBefore) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  WriteNumbers(blocks);
  ExpectOk(Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), {.keep = Keep::kHost}); }));
  LeaveAll();
  Connect(0);
  ExpectFailure(RehomeFrom(0), StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  {
    const InjectedFault none({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
    ExpectFailure(WakeRank(0), StatusCode::kOutOfMemory, "wake: waking 2 MiB: cuMemCreate of 2 MiB");
    EXPECT_TRUE(PoolOf(group()[0]).basis().life.asleep());
  }
  for (int number = 0; number <= last(); ++number) ExpectOk({WakeRank(number)});
  ExpectNumbers(blocks);
  EXPECT_EQ(RegisteredSegments(0), 0u);
  Free(blocks);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, IsTheWayOutWhereARankStayedAsleepWhileTheOthersWoke) {
  CreateAndReserve(2 * kMiB, [](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  WriteNumbers(blocks);
  ExpectOk(Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), {.keep = Keep::kHost}); }));
  Statuses woken = Run([&](Rank& rank) { return rank.number == last() ? Status() : WakeAlone(PoolOf(rank)); });
  woken.pop_back();
  ExpectFailure(woken, StatusCode::kDeadlineExceeded, "rank " + std::to_string(last()) + ": ");
  for (int number = 0; number <= last(); ++number) EXPECT_TRUE(PoolOf(group()[number]).basis().life.asleep());
  LeaveAll();
  for (int number = 0; number <= last(); ++number) ExpectOk({WakeRank(number)});
  ExpectNumbers(blocks);
  Free(blocks);
  Connect(0);
  ExpectOk(RehomeFrom(0));
  ExpectSymmetricFrom(0);
}

TEST_F(Rehome, APoolThatSleepsMayBeClosedByEachRankForItself) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), {}); }));
  LeaveAll();
  for (int number = 0; number <= last(); ++number) {
    ExpectOk({PoolOf(group()[number]).Close()});
    EXPECT_EQ(ReservedBytes(number), 0u);
  }
  Connect(0);  // needed at the fixture's end
}

TEST_F(Rehome, ARankThatCannotMakeTheSegmentsFailsAllRanksAndTheyKeepTheirs) {
  CreateAndReserve(2 * kMiB);
  LeaveAll();
  ExpectOk({PoolOf(group()[0]).Close()});
  Connect(0);
  {
    const InjectedFault fault({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY});
    ExpectFailure(Run([&](Rank& rank) {
                    return rank.number == 0 ? runtime().CreatePool(Configured(rank)).status()
                                            : PoolOf(rank).mode().AsSymmetric()->Rehome(rank.communicator);
                  }),
                  StatusCode::kOutOfMemory, "making the pool's 1 segments");
  }
  for (int number = 1; number <= last(); ++number) {
    EXPECT_EQ(ReservedBytes(number), 2 * kMiB);
    EXPECT_EQ(RegisteredSegments(number), 0u);
  }
}

TEST_F(Rehome, TheNewHomeTakesPartInACloseAndIsLeftLikeTheFirst) {
  CreateAndReserve(2 * kMiB);
  LeaveAll();
  Connect(0);
  ExpectOk(RehomeFrom(0));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  for (int number = 0; number < last(); ++number) {
    ExpectOk({PoolOf(group()[number]).Free(blocks[static_cast<size_t>(number)])});
  }
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, "rank " + std::to_string(last()) + " cannot close");
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  LeaveAll();
  for (int number = 0; number <= last(); ++number) ExpectOk({PoolOf(group()[number]).Close()});
}

// All ranks left home. If they cannot reach a next home, the pool has none, and each rank closes it alone.
TEST_F(Rehome, APoolThatFoundNoNewHomeIsClosedAlone) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));
  const CUdeviceptr block = PoolOf(group()[0]).Allocate(kMiB, KeyOfStream(group()[0].stream, 0)).value();
  std::vector<ncclComm_t> next = group().ConnectFrom(0);
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).mode().AsSymmetric()->Rehome(next[static_cast<size_t>(rank.number)]);
                }),
                StatusCode::kFailedPrecondition, "rank 0 cannot create");
  ExpectOk({PoolOf(group()[0]).Free(block)});
  for (int number = 0; number <= last(); ++number) ExpectOk({PoolOf(group()[number]).Close()});
  group().Destroy(next);
}

TEST_F(Rehome, APoolThatIsNotSymmetricHasNoHome) {
  PoolConfiguration configuration;
  const PoolHandle fixed = runtime().CreatePool(configuration).value();
  ExpectFailure(SymmetricMode::Of(*runtime().pools().Find(fixed).value(), "rehome").status(), StatusCode::kNotSupported,
                "is not symmetric");
  ExpectOk({runtime().DestroyPool(fixed)});
}

}  // namespace
}  // namespace commpool::internal::testing
