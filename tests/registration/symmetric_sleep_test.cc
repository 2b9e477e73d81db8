// Symmetric pools sleep and wake on all ranks or on none. Windows end, and come back in a wake.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "tests/pool/announced_capture.h"
#include "tests/pool/pool_fixture.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"
#include "tools/common/sleep_alone.h"

namespace commpool::internal::testing {
namespace {

class SymmetricSleep : public SymmetricTest {
 protected:
  Statuses Sleep(const SleepRequest& request = {}) {
    return Run([&](Rank& rank) { return SleepAlone(PoolOf(rank), request); });
  }
  Statuses Wake() {
    return Run([&](Rank& rank) { return WakeAlone(PoolOf(rank)); });
  }
  uint64_t AsleepBytes(int rank) { return PoolOf(group()[rank]).Statistics().asleep_bytes; }
  void ExpectAllAsleep() {
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_TRUE(PoolOf(group()[rank]).basis().life.asleep());
      EXPECT_EQ(AsleepBytes(rank), ReservedBytes(rank));
      EXPECT_EQ(RegisteredSegments(rank), 0u);
    }
  }
  void FillOnEach(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      Fill(rank.stream, blocks[static_cast<size_t>(rank.number)], 4096, static_cast<uint8_t>(rank.number + 1));
    });
  }
  void ExpectFilled(const std::vector<CUdeviceptr>& blocks) {
    ForEach([&](Rank& rank) {
      uint64_t wrong = 0;
      Compare(rank.stream, blocks[static_cast<size_t>(rank.number)], 4096, static_cast<uint8_t>(rank.number + 1),
              &wrong);
      EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
      EXPECT_EQ(wrong, 0u);
    });
  }
};

TEST_F(SymmetricSleep, EndsItsWindowsAndMakesThemAgain) {
  CreateAndReserve(4 * kMiB);
  ExpectOk(Reserve(8 * kMiB));
  const std::vector<CUdeviceptr> blocks = Allocate(3 * kMiB);
  const std::vector<uint64_t> offsets = OffsetsOf(blocks);
  FillOnEach(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  ExpectAllAsleep();
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_FALSE(runtime().windows().Find(group()[rank].communicator, blocks[static_cast<size_t>(rank)]));
  }
  ExpectOk(Wake());
  EXPECT_EQ(OffsetsOf(blocks), offsets);
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectFilled(blocks);
  Free(blocks);
}

TEST_F(SymmetricSleep, RegistersWithEveryCommunicatorAsBefore) {
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> others = group().ConnectFrom(1);
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(others[static_cast<size_t>(rank.number)]); }));
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ExpectOk(Sleep());
  ExpectOk(Wake());
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(RegisteredSegments(last()), 2u);
  EXPECT_TRUE(runtime().windows().Find(others.back(), blocks.back()));
  // What is given up asleep is not made again.
  ExpectOk(Sleep());
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(others[static_cast<size_t>(rank.number)]); }));
  ExpectOk(Wake());
  EXPECT_EQ(RegisteredSegments(last()), 1u);
  group().Destroy(others);
  Free(blocks);
}

TEST_F(SymmetricSleep, RefusesCollectiveCallsOnAllRanksMeanwhileAndTakesFrees) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ExpectOk(Sleep());
  for (const Statuses& refused : {Reserve(kMiB), Trim(0), Reclaim(), Sleep()}) {
    ExpectFailure(refused, StatusCode::kFailedPrecondition, "is asleep: wake() it first");
  }
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); }),
                StatusCode::kFailedPrecondition, "is asleep");
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(rank.communicator); }),
                StatusCode::kFailedPrecondition, "is asleep");
  ExpectFailure(
      Run([&](Rank& rank) { return PoolOf(rank).Allocate(kMiB, KeyOfStream(rank.stream, rank.number)).status(); }),
      StatusCode::kFailedPrecondition, "is asleep");
  Free(blocks);
  ExpectOk(Wake());
  ExpectFailure(Wake(), StatusCode::kFailedPrecondition, "rank 0 cannot wake: ");
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
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  FillOnEach(blocks);
  ExpectOk(Sleep({.keep = Keep::kHost}));
  {
    const InjectedFault one({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1});
    const Statuses statuses = Wake();
    ExpectFailure(statuses, StatusCode::kOutOfMemory, "making memory to wake failed on rank ");
    ExpectFailure(statuses, StatusCode::kOutOfMemory, "waking 2 MiB: cuMemCreate of 2 MiB");
  }
  ExpectAllAsleep();
  ExpectOk(Wake());
  ExpectFilled(blocks);
  Free(blocks);
}

TEST_F(SymmetricSleep, NamesARankThatNeverComesToWake) {
  AllowLeak("reserved addresses");  // the other ranks may still know them
  CreateAndReserve(2 * kMiB, [](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 2000; });
  ExpectOk(Sleep());
  Statuses statuses = Run([&](Rank& rank) { return rank.number == last() ? Status() : WakeAlone(PoolOf(rank)); });
  statuses.pop_back();
  ExpectFailure(statuses, StatusCode::kDeadlineExceeded, "rank " + std::to_string(last()) + ": ");
  ExpectFailure(statuses, StatusCode::kDeadlineExceeded, "wake");
  ExpectAllAsleep();
  // The ranks continue as after a loss.
  ExpectOk(Run([&](Rank& rank) {
    return PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kAlive);
  }));
  ExpectOk(Close());
}

TEST_F(SymmetricSleep, AStepThatFailsOnOneRankIsUndoneOnAll) {
  COMMPOOL_REQUIRE_EMULATOR("faults are injected");
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  FillOnEach(blocks);
  const std::array<Fault, 4> while_falling_asleep = {{{"cuMemAllocHost", CUDA_ERROR_OUT_OF_MEMORY, 1},
                                                      {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, 1},
                                                      {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE, 0},
                                                      {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE, last()}}};
  for (const Fault& fault : while_falling_asleep) {
    {
      const InjectedFault injected(fault);
      for (const Status& status : Sleep({.keep = Keep::kHost})) {
        EXPECT_NE(status.message().find(fault.call), std::string::npos) << status.message();
      }
    }
    for (int rank = 0; rank <= last(); ++rank) {
      EXPECT_TRUE(PoolOf(group()[rank]).basis().life.open());
      EXPECT_EQ(RegisteredSegments(rank), 1u);
    }
    ExpectFilled(blocks);
  }
  ExpectOk(Sleep({.keep = Keep::kHost}));
  const std::array<Fault, 3> while_waking = {{{"cuMemMap", CUDA_ERROR_INVALID_VALUE, 1},
                                              {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, 1},
                                              {"ncclCommWindowRegister", ncclInternalError, 0, group().size()}}};
  for (const Fault& fault : while_waking) {
    {
      const InjectedFault injected(fault);
      for (const Status& status : Wake()) {
        EXPECT_NE(status.message().find(fault.call), std::string::npos) << status.message();
      }
    }
    ExpectAllAsleep();
  }
  ExpectOk(Wake());
  ExpectFilled(blocks);
  Free(blocks);
}

TEST_F(SymmetricSleep, SleepsUnderLiveGraphsForNcclRegistersNothingUnseen) {
  CreateAndReserve(2 * kMiB);
  std::array<AnnouncedCapture, 8> captures;
  ExpectOk(Run([&](Rank& rank) {
    AnnouncedCapture& capture = captures[static_cast<size_t>(rank.number)];
    Status status = capture.Begin(runtime(), HandleOf(rank), rank.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    return status.ok() ? capture.End() : status;
  }));
  for (const LiveGraphs graphs : {LiveGraphs::kRefused, LiveGraphs::kNoCollectives, LiveGraphs::kDiscarded}) {
    ExpectOk(Sleep({.graphs = graphs}));
    ExpectOk(Wake());
  }
  for (int rank = 0; rank <= last(); ++rank) captures[static_cast<size_t>(rank)].DestroyGraph();
}

// By default NCCL registers the memory of windows and of captured collectives for itself.
TEST_F(SymmetricSleep, IsRefusedOnAllRanksWhereNcclMayRegisterMemoryUnseen) {
  CreateAndReserve(2 * kMiB);
  for (const char* const variable : {"NCCL_LOCAL_REGISTER", "NCCL_GRAPH_REGISTER"}) {
    for (const char* const value : {"1", "", "-1", "unset"}) {
      setenv(variable, value, 1);
      if (value == std::string("unset")) unsetenv(variable);
      const Statuses statuses = Sleep();
      ExpectFailure(statuses, StatusCode::kFailedPrecondition, std::string(variable) + " is not 0");
      ExpectFailure(statuses, StatusCode::kFailedPrecondition, "Without such graphs: graphs = NO_COLLECTIVES; with");
      EXPECT_EQ(RegisteredSegments(0), 1u) << "nothing has changed";
    }
    ExpectOk(Sleep({.graphs = LiveGraphs::kNoCollectives}));
    ExpectOk(Wake());
    setenv(variable, "0", 1);
  }
  ExpectOk(Sleep());
  ExpectOk(Wake());
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
