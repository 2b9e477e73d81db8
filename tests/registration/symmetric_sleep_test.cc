// Symmetric pools sleep and wake on all ranks or on none. Windows end, and come back in a wake.
#include <array>
#include <cstdlib>
#include <string>

#include "tests/pool/announced_capture.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricSleep : public SymmetricTest {
 protected:
  void ExpectAllAsleep() {
    ExpectOnAll(ReservedBytes(0), 0);
    for (Rank& rank : group()) {
      EXPECT_TRUE(PoolOf(rank).basis().life.asleep());
      EXPECT_EQ(StatisticsOf(rank.number).asleep_bytes, ReservedBytes(0));
    }
  }
  void ExpectAllRefuse(const Statuses& statuses, const std::string& why) {
    ExpectFailure(statuses, StatusCode::kFailedPrecondition, why);
  }
};

TEST_F(SymmetricSleep, EndsItsWindowsAndMakesThemAgain) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(Reserve(8 * kMiB));
  const HeldBlocks blocks = Hold(3 * kMiB);
  const std::vector<uint64_t> offsets = OffsetsOf(blocks);
  WriteNumbers(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  ExpectAllAsleep();
  for (Rank& rank : group()) {
    EXPECT_FALSE(runtime().windows().Find(rank.communicator, blocks[rank.index()]));
  }
  ExpectOk(Wake());
  EXPECT_EQ(OffsetsOf(blocks), offsets);
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectNumbers(blocks);
}

TEST_F(SymmetricSleep, RegistersWithEveryCommunicatorAsBefore) {
  CreateAndReserve(2 * kMiB);
  const std::vector<ncclComm_t>& others = Another(1);
  ExpectOk(Register(others));
  const HeldBlocks blocks = Hold(kMiB);
  SleepAndWake();
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(RegisteredSegments(last()), 2u);
  EXPECT_TRUE(runtime().windows().Find(others.back(), blocks.back()));
  // What is given up asleep is not made again.
  ExpectOk(Sleep());
  ExpectOk(Deregister(others));
  ExpectOk(Wake());
  EXPECT_EQ(RegisteredSegments(last()), 1u);
}

TEST_F(SymmetricSleep, RefusesCollectiveCallsOnAllRanksMeanwhileAndTakesFrees) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB);
  ExpectOk(Sleep());
  for (const Statuses& refused : {Reserve(kMiB), Trim(0), Reclaim(), Sleep()}) {
    ExpectAllRefuse(refused, "is asleep: wake() it first");
  }
  ExpectAllRefuse(Verify(), "is asleep");
  ExpectAllRefuse(Register(Homes()), "is asleep");
  ExpectAllRefuse(Run([&](Rank& rank) { return AllocateOn(rank, kMiB).status(); }), "is asleep");
  Free(blocks);
  ExpectOk(Wake());
  ExpectAllRefuse(Wake(), "rank 0 cannot wake: ");
  ExpectOk(Reclaim());
  Free(Allocate(2 * kMiB));
}

TEST_F(SymmetricSleep, ClosesAsleep) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Sleep());
  ExpectOk(Close());
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricSleep, FailsOnAllWhereRanksAskForDifferentThings) {
  CreateAndReserve(2 * kMiB);
  ExpectFailure(Run([&](Rank& rank) {
                  return SleepAlone(PoolOf(rank), {.keep = rank.number == 0 ? Keep::kHost : Keep::kDiscard});
                }),
                StatusCode::kDisagreement, "ranks disagree on sleep: some keep their blocks' contents");
  ExpectFailure(Run([&](Rank& rank) {
                  return rank.number == 0 ? SleepAlone(PoolOf(rank), {}) : PoolOf(rank).mode().Reserve(kMiB);
                }),
                StatusCode::kDisagreement, "rank 0: sleep, rank 1: reserve");
  ExpectOk(Sleep());
  ExpectFailure(Run([&](Rank& rank) { return rank.number == 0 ? WakeAlone(PoolOf(rank)) : PoolOf(rank).Close(); }),
                StatusCode::kDisagreement, "rank 0: wake, rank 1: close");
  ExpectOk(Wake());
}

TEST_F(SymmetricSleep, ARankWithoutMemoryToWakeLeavesAllAsleep) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const HeldBlocks blocks = CreateAndHold(2 * kMiB, kMiB);
  WriteNumbers(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  {
    const InjectedFault one({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1});
    ExpectFailureNaming(Wake(), StatusCode::kOutOfMemory,
                        {"making memory to wake failed on rank ", "waking 2 MiB: cuMemCreate of 2 MiB"});
  }
  ExpectAllAsleep();
  ExpectOk(Wake());
  ExpectNumbers(blocks);
}

TEST_F(SymmetricSleep, NamesARankThatNeverComesToWake) {
  AllowLeak("reserved addresses");  // the other ranks may still know them
  CreateAndReserve(2 * kMiB, Deadline(2000));
  ExpectOk(Sleep());
  ExpectFailureNaming(RunButLast([&](Rank& rank) { return WakeAlone(PoolOf(rank)); }), StatusCode::kDeadlineExceeded,
                      {LastRank() + ": ", "wake"});
  ExpectAllAsleep();
  // The ranks continue as after a loss.
  ExpectOk(Abandon(Homes(), CommunicatorLife::kAlive));
  ExpectOk(Close());
}

TEST_F(SymmetricSleep, AStepThatFailsOnOneRankIsUndoneOnAll) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  const HeldBlocks blocks = CreateAndHold(2 * kMiB, kMiB);
  WriteNumbers(blocks);
  for (const Fault& fault : {Fault{"cuMemAllocHost", CUDA_ERROR_OUT_OF_MEMORY, 1},
                             {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, 1},
                             {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE, 0},
                             {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE, last()}}) {
    for (const Status& status : With(fault, [&] { return Sleep({.keep = Keep::kHost}); })) {
      ExpectFailure(status, status.code(), fault.call);
    }
    for (Rank& rank : group()) EXPECT_TRUE(PoolOf(rank).basis().life.open());
    ExpectOnAll(2 * kMiB, 1);
    ExpectNumbers(blocks);
  }
  ExpectOk(Sleep({.keep = Keep::kHost}));
  for (const Fault& fault : {Fault{"cuMemMap", CUDA_ERROR_INVALID_VALUE, 1},
                             {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, 1},
                             {"ncclCommWindowRegister", ncclInternalError, 0, group().size()}}) {
    for (const Status& status : With(fault, [&] { return Wake(); })) {
      ExpectFailure(status, status.code(), fault.call);
    }
    ExpectAllAsleep();
  }
  ExpectOk(Wake());
  ExpectNumbers(blocks);
}

TEST_F(SymmetricSleep, SleepsUnderLiveGraphsForNcclRegistersNothingUnseen) {
  CreateAndReserve(2 * kMiB);
  std::array<AnnouncedCapture, 8> captures;
  ExpectOk(Run([&](Rank& rank) {
    AnnouncedCapture& capture = captures[rank.index()];
    Status status = capture.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    return status.ok() ? capture.End() : status;
  }));
  for (const LiveGraphs graphs : {LiveGraphs::kRefused, LiveGraphs::kNoCollectives, LiveGraphs::kDiscarded}) {
    SleepAndWake({.graphs = graphs});
  }
  for (Rank& rank : group()) captures[rank.index()].DestroyGraph();
}

// By default NCCL registers the memory of windows and of captured collectives for itself.
TEST_F(SymmetricSleep, IsRefusedOnAllRanksWhereNcclMayRegisterMemoryUnseen) {
  CreateAndReserve(2 * kMiB);
  for (const char* const variable : {"NCCL_LOCAL_REGISTER", "NCCL_GRAPH_REGISTER"}) {
    for (const char* const value : {"1", "", "-1", "unset"}) {
      setenv(variable, value, 1);
      if (value == std::string("unset")) unsetenv(variable);
      const Statuses statuses = Sleep();
      ExpectAllRefuse(statuses, std::string(variable) + " is not 0");
      ExpectAllRefuse(statuses, "Without such graphs: graphs = NO_COLLECTIVES; with");
      EXPECT_EQ(RegisteredSegments(0), 1u) << "nothing has changed";
    }
    SleepAndWake({.graphs = LiveGraphs::kNoCollectives});
    setenv(variable, "0", 1);
  }
  SleepAndWake();
}

TEST_F(SymmetricSleep, IsRefusedOnAllRanksWhereTheyWakeForDifferentGraphs) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Sleep());
  const auto of_rank = [](const Rank& rank) {
    return SleepRequest{.graphs = rank.number == 0 ? LiveGraphs::kDiscarded : LiveGraphs::kRefused};
  };
  ExpectFailure(Run([&](Rank& rank) { return WakeAlone(PoolOf(rank), of_rank(rank)); }), StatusCode::kDisagreement,
                "ranks disagree on wake: some say something else of graphs");
  const auto unready = [](const Rank& rank) {
    return SleepRequest{.readiness =
                            rank.number == 0 ? Status(StatusCode::kInvalidArgument, "no such word") : Status()};
  };
  ExpectFailure(Run([&](Rank& rank) { return WakeAlone(PoolOf(rank), unready(rank)); }), StatusCode::kInvalidArgument,
                "no such word");
  ExpectAllAsleep();
  ExpectOk(Wake());
}

}  // namespace
}  // namespace commpool::internal::testing
