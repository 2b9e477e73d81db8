// A symmetric pool's call fails on one rank, or differs between ranks: then it fails on all ranks.
#include <algorithm>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricPoolFailure : public SymmetricTest {
 protected:
  std::string LastRank() const { return "rank " + std::to_string(last()); }

  Status AllocateOn(const Rank& rank, uint64_t bytes) {
    return PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number)).status();
  }
};

// Each rank's message names its own pool first, then the rank that failed and the reason.
void ExpectTheSameReasonOnAll(const Statuses& statuses) {
  const auto reason = [](const Status& status) { return status.message().substr(status.message().find("rank ")); };
  for (const Status& status : statuses) EXPECT_EQ(reason(status), reason(statuses[0]));
}

TEST_F(SymmetricPoolFailure, ACreateWhoseRanksCannotMeetNamesThePool) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  const InjectedFault on_all({.call = "cuStreamCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .count = group().size()});
  ExpectFailure(Create(), StatusCode::kOutOfMemory, "pool gradients: ");
}

TEST_F(SymmetricPoolFailure, ACreateWithADeviceThatIsNotThereFailsOnAll) {
  const Statuses statuses = Create([&](const Rank& rank, PoolConfiguration& configuration) {
    if (rank.number == last()) configuration.backing.placement.device = 999;
  });
  ExpectFailure(statuses, StatusCode::kInvalidArgument, LastRank() + " cannot create: ");
  ExpectTheSameReasonOnAll(statuses);
}

TEST_F(SymmetricPoolFailure, ACreateOnAnotherDeviceThanTheCommunicatorsFailsOnAll) {
  ExpectFailure(Create([&](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == last()) configuration.backing.placement.device = 0;
                }),
                StatusCode::kInvalidArgument, "symmetric_across is a communicator of device " + std::to_string(last()));
}

TEST_F(SymmetricPoolFailure, ACreateWithABackingWithoutWindowsFailsOnAll) {
  ExpectFailure(Create([&](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == 0) configuration.backing.kind = BackingKind::kCuda;
                }),
                StatusCode::kNotSupported, "rank 0 cannot create: ");
}

TEST_F(SymmetricPoolFailure, ACreateWithOtherOptionsFailsOnAll) {
  ExpectFailure(Create([&](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == last()) configuration.alignment_bytes = 4096;
                }),
                StatusCode::kDisagreement, "ranks disagree on the pool's options: alignment: rank 0 512 bytes, rank ");
  ExpectFailure(Create([&](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == last()) configuration.limit_bytes = kGiB;
                }),
                StatusCode::kDisagreement, "options: limit: rank 0 none, rank ");
}

TEST_F(SymmetricPoolFailure, ARankOutOfMemoryFailsAllAndThePoolIsAsBefore) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  {
    const InjectedFault one({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1});
    const Statuses statuses = Reserve(4 * kMiB);
    ExpectFailure(statuses, StatusCode::kOutOfMemory, "making a segment of 4 MiB failed on rank ");
    ExpectTheSameReasonOnAll(statuses);
  }
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_EQ(ReservedBytes(rank), 2 * kMiB);
    EXPECT_EQ(RegisteredSegments(rank), 1u);
  }
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(ReservedBytes(0), 6 * kMiB);
}

TEST_F(SymmetricPoolFailure, AFailedMappingFailsAllAndThePoolIsAsBefore) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk(Create());
  for (const char* call : {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const InjectedFault one({.call = call, .result = CUDA_ERROR_INVALID_VALUE, .skip = last()});
    ExpectFailure(Reserve(2 * kMiB), StatusCode::kDriverError, call);
    EXPECT_EQ(ReservedBytes(0), 0u);
  }
}

TEST_F(SymmetricPoolFailure, AFailedRegistrationIsUndone) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk(Create());
  {
    // Runs on every rank: a missing rank would keep the others inside NCCL's call.
    const InjectedFault all({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = group().size()});
    ExpectFailure(Reserve(2 * kMiB), StatusCode::kCommunicatorError, "registering a segment of 2 MiB failed on rank 0");
  }
  EXPECT_EQ(ReservedBytes(0), 0u);
  EXPECT_EQ(RegisteredSegments(last()), 0u);
  ExpectOk(Reserve(2 * kMiB));
}

TEST_F(SymmetricPoolFailure, ReservesOfDifferentSizesFailOnAll) {
  ExpectOk(Create());
  const Statuses statuses =
      Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(rank.number == last() ? kMiB : 2 * kMiB); });
  ExpectFailure(statuses, StatusCode::kDisagreement, "ranks disagree on the bytes of reserve: rank 0: 2097152 bytes");
  ExpectOk(Reserve(2 * kMiB));
}

TEST_F(SymmetricPoolFailure, DifferentCallsFailOnAll) {
  ExpectOk(Create());
  ExpectFailure(
      Run([&](Rank& rank) { return rank.number == 0 ? PoolOf(rank).Close() : PoolOf(rank).mode().Reserve(kMiB); }),
      StatusCode::kDisagreement, "rank 0: close, rank 1: reserve");
}

TEST_F(SymmetricPoolFailure, ADifferentSequenceIsTracedToItsFirstCall) {
  ExpectOk(Create());
  ForEach([&](Rank& rank) {
    // Refused, because the pool is empty; still part of the sequence.
    EXPECT_EQ(AllocateOn(rank, 1000).code(), StatusCode::kExhausted);
    EXPECT_EQ(AllocateOn(rank, rank.number == last() ? 3000 : 2000).code(), StatusCode::kExhausted);
  });
  for (int time = 0; time < 2; ++time) {
    const Statuses statuses = Reserve(2 * kMiB);
    ExpectFailure(statuses, StatusCode::kDisagreement, "rank 0 made refused allocation of 2,000 bytes (call 2)");
    ExpectFailure(statuses, StatusCode::kDisagreement, LastRank() + " made refused allocation of 3,000 bytes (call 2)");
    ExpectTheSameReasonOnAll(statuses);
  }
}

TEST_F(SymmetricPoolFailure, ExhaustionNamesTheBytesToReserve) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  const Statuses statuses = Run([&](Rank& rank) { return AllocateOn(rank, 3 * kMiB - 1000); });
  const uint64_t needed = 3 * kMiB - 512;  // the request, rounded up
  ExpectFailure(statuses, StatusCode::kExhausted,
                "has no free block of " + FormatBytes(3 * kMiB - 1000) +
                    ": 2 MiB are reserved, the largest free block is 1 MiB. On every rank: reserve(" +
                    std::to_string(needed) + ")");
  EXPECT_EQ(statuses[0].message().find("reclaim"), std::string::npos) << "no segment is as large";
  EXPECT_EQ(PoolOf(group()[0]).Statistics().failed_allocations, 1u);
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, 2 * kMiB); }), StatusCode::kExhausted,
                "which is 2 MiB, or reclaim() once every rank has freed as much");
  ExpectOk(Reserve(needed));
  Free(Allocate(3 * kMiB - 1000));
  Free(blocks);
}

TEST_F(SymmetricPoolFailure, ExhaustionOfOrderedFreesHasNothingToReclaim) {
  CreateAndReserve(2 * kMiB, Ordered);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  const Statuses statuses = Run([&](Rank& rank) { return AllocateOn(rank, 2 * kMiB); });
  ExpectFailure(statuses, StatusCode::kExhausted, "On every rank: reserve(2097152)");
  EXPECT_EQ(statuses[0].message().find("reclaim"), std::string::npos) << statuses[0].message();
  Free(blocks);
}

TEST_F(SymmetricPoolFailure, ImpossibleSizesFailOnAll) {
  ExpectOk(Create());
  ExpectFailure(Reserve(0), StatusCode::kInvalidArgument, "reserve of 0 bytes");
  ExpectFailure(Reserve(UINT64_MAX), StatusCode::kInvalidArgument, "overflows");
  ExpectFailure(Reserve(uint64_t{1} << 50), StatusCode::kOutOfMemory, " left");
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, 0); }), StatusCode::kInvalidArgument, "gradients");
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, UINT64_MAX); }), StatusCode::kInvalidArgument,
                "gradients");
  ExpectOk(Reserve(2 * kMiB));
}

TEST_F(SymmetricPoolFailure, ATrimKeepsWhatItIsAskedToKeep) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  Free(blocks);
  ExpectOk(Trim(6 * kMiB));
  EXPECT_EQ(ReservedBytes(0), 6 * kMiB);
  ExpectOk(Trim(2 * kMiB));
  EXPECT_EQ(ReservedBytes(last()), 2 * kMiB) << "the last segment went";
}

TEST_F(SymmetricPoolFailure, ATrimThatOneDriverRefusesLeavesTheRanksAlike) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  ExpectOk(Create());
  for (const uint64_t bytes : {2 * kMiB, 4 * kMiB}) ExpectOk(Reserve(bytes));
  {
    const InjectedFault one({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    const Statuses statuses = Trim(0);
    EXPECT_EQ(std::count_if(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); }), last())
        << "the other ranks have nothing to tell";
  }
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(ReservedBytes(rank), 0u);
  ExpectOk(Reserve(2 * kMiB));
  Free(Allocate(kMiB));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); }));
}

// The other ranks are gone by then, so this one closes alone.
TEST_F(SymmetricPoolFailure, ACloseThatOneDriverRefusesIsDoneOnceThatRankRepeatsIt) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  Statuses statuses;
  {
    const InjectedFault one({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN});
    statuses = Close();
  }
  int refused = 0;
  for (int rank = 0; rank <= last(); ++rank) {
    Pool& pool = PoolOf(group()[rank]);
    const bool here = !statuses[static_cast<size_t>(rank)].ok();
    refused += here ? 1 : 0;
    const MemoryAccount& account = runtime().devices().Get(rank).value()->account();
    EXPECT_EQ(account.taken(), here ? 2 * kMiB : 0u);
    EXPECT_EQ(pool.basis().life.closed(), !here);
    EXPECT_EQ(pool.mode().Reserve(kMiB).code(), StatusCode::kFailedPrecondition) << "it asks no other rank";
    EXPECT_TRUE(pool.Close().ok());
    EXPECT_TRUE(pool.basis().life.closed());
    EXPECT_EQ(account.taken(), 0u);
  }
  EXPECT_EQ(refused, 1);
}

InjectedFault FailOneDeregistration(int count = 1) {
  return InjectedFault({.call = "ncclCommWindowDeregister", .result = ncclInternalError, .count = count});
}

TEST_F(SymmetricPoolFailure, ATrimThatCouldNotEndAWindowLeavesAllRanksTheirs) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  {
    const InjectedFault one = FailOneDeregistration();
    const Statuses statuses = Trim(0);
    ExpectFailure(statuses, StatusCode::kCommunicatorError, "deregistering failed on rank ");
    ExpectTheSameReasonOnAll(statuses);
  }
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(RegisteredSegments(rank), 1u);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  EXPECT_EQ(OffsetsOf(blocks), std::vector<uint64_t>(blocks.size(), 0));
  Free(blocks);
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricPoolFailure, MemoryWhoseWindowCouldNotBeEndedStaysUntilItIs) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  {
    const InjectedFault always = FailOneDeregistration(100);
    ExpectFailure(Trim(0), StatusCode::kCommunicatorError, "; then pool gradients");
    ExpectFailure(Close(), StatusCode::kCommunicatorError, "deregistering failed on rank 0");
  }
  EXPECT_EQ(ReservedBytes(0), 2 * kMiB);
  ExpectOk(Close());
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricPoolFailure, ADeregisterThatFailedOnOneRankMayBeRepeated) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> second = group().ConnectFrom(0);
  const auto of = [&](const Rank& rank) { return second[static_cast<size_t>(rank.number)]; };
  const auto deregister = [&] { return Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(of(rank)); }); };
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(of(rank)); }));
  {
    const InjectedFault one = FailOneDeregistration();
    ExpectFailure(deregister(), StatusCode::kCommunicatorError, "deregistering failed on rank ");
  }
  ExpectOk(Reserve(4 * kMiB));  // with home alone: no rank waits for another on what they have left
  ExpectOk(deregister());
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(RegisteredSegments(rank), 2u);
  group().Destroy(second);
}

TEST_F(SymmetricPoolFailure, ALimitHoldsOnAll) {
  CreateAndReserve(4 * kMiB,
                   [](const Rank&, PoolConfiguration& configuration) { configuration.limit_bytes = 4 * kMiB; });
  ExpectFailure(Reserve(6 * kMiB), StatusCode::kOutOfMemory, "would exceed its limit of 4 MiB");
}

TEST_F(SymmetricPoolFailure, CloseWithALiveBlockOnOneRankIsRefusedOnAll) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ExpectOk(Run([&](Rank& rank) {
    return rank.number == last() ? Status() : PoolOf(rank).Free(blocks[static_cast<size_t>(rank.number)]);
  }));
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, LastRank() + " cannot close: ");
  EXPECT_EQ(ReservedBytes(0), 2 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return rank.number == last() ? PoolOf(rank).Free(blocks.back()) : Status(); }));
  Free(Allocate(kMiB));  // the pool is as open as before
}

TEST_F(SymmetricPoolFailure, ASecondFreeIsRefused) {
  CreateAndReserve(2 * kMiB);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  EXPECT_EQ(PoolOf(group()[0]).Free(blocks[0] + 512).code(), StatusCode::kNotFound);
  Free(blocks);
  EXPECT_EQ(PoolOf(group()[0]).Free(blocks[0]).code(), StatusCode::kNotFound);
}

TEST_F(SymmetricPoolFailure, AClosedPoolRefusesEveryCall) {
  ExpectOk(Create());
  ExpectOk(Close());
  const auto closed = StatusCode::kFailedPrecondition;
  ExpectFailure(Reserve(kMiB), closed, "is closed");
  ExpectFailure(Reclaim(), closed, "is closed");
  ExpectFailure(Trim(0), closed, "is closed");
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(rank.communicator); }), closed,
                "is closed");
  ExpectFailure(Run([&](Rank& rank) { return AllocateOn(rank, 1); }), closed, "is closed");
  ExpectOk(
      Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); }));  // nothing is registered
}

TEST_F(SymmetricPoolFailure, APoolDestroyedWithoutCloseWarnsAndKeepsItsWindows) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  for (const char* kept : {"reserved addresses", "mapping", "physical memory", "primary context", "registration"}) {
    AllowLeak(kept);
  }
  CreateAndReserve(2 * kMiB);
  const uint64_t deregisters = CallCount("ncclCommWindowDeregister");
  ::testing::internal::CaptureStderr();
  DestroyPools();
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("was destroyed without close(): 2 MiB stay mapped"), std::string::npos) << warning;
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), deregisters);
  EXPECT_FALSE(EmulatorLeaks().empty());
  End();
  EXPECT_FALSE(TakeReports().empty());  // reports communicators that end with registrations
}

// Ranks stay away from a collective call, or leave: the others end within the deadline and name them.

class LateRank : public SymmetricTest {
 protected:
  Statuses CreateWithShortDeadline() {
    return Create([](const Rank&, PoolConfiguration& configuration) { configuration.deadline_ms = 1000; });
  }
  // The other ranks' results of a reserve that the last rank does not make.
  Statuses ReserveWithoutTheLast() {
    Statuses statuses =
        Run([&](Rank& rank) { return rank.number == last() ? Status() : PoolOf(rank).mode().Reserve(2 * kMiB); });
    statuses.pop_back();
    return statuses;
  }
};

TEST_F(LateRank, IsNamedAndThePoolStaysBroken) {
  ExpectOk(CreateWithShortDeadline());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kDeadlineExceeded, "rank " + std::to_string(last()) + ": ");
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectFailure(PoolOf(group()[0]).Close(), StatusCode::kDeadlineExceeded, "an earlier call of the ranks failed");
  DestroyPools();  // the pool holds nothing
}

// A call after the communicator's end releases what the all-gather used.
TEST_F(LateRank, ThatMakesNoPoolCostsNoMemoryOnceTheCommunicatorIsAborted) {
  COMMPOOL_REQUIRE_EMULATOR("its leaks are looked for");
  const std::vector<std::string> before = EmulatorLeaks();
  const std::vector<ncclComm_t> home = group().ConnectFrom(0);
  ExpectFailure(Run([&](Rank& rank) {
                  if (rank.number == last()) return Status(StatusCode::kDeadlineExceeded, "not every rank creates");
                  PoolConfiguration configuration = Configured(rank);
                  configuration.home = home[static_cast<size_t>(rank.number)];
                  configuration.deadline_ms = 300;
                  return runtime().CreatePool(configuration).status();
                }),
                StatusCode::kDeadlineExceeded, "not every rank creates");
  EXPECT_GT(EmulatorLeaks().size(), before.size()) << "NCCL's kernels wait, and use it";
  for (const ncclComm_t communicator : home) EXPECT_EQ(driver().nccl.ncclCommAbort(communicator), ncclSuccess);
  ExpectOk(Create());
  ExpectOk(Close());
}

TEST_F(LateRank, ThatDestroyedItsPoolIsNamedAtOnce) {
  ExpectOk(Create());
  ReleasePoolOf(last());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kRemoteFailure, "rank " + std::to_string(last()) + ": ");
  DestroyPools();
}

// A peer's work never ends, because a rank stays away from its collective. A revoke waits for it no longer than the
// pool's deadline.

class BusyPeer : public SymmetricTest {
 protected:
  Status SumOn(Rank& rank) {
    CUdeviceptr& memory = memory_[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuMemAlloc(&memory, kKiB), CUDA_SUCCESS);
    auto* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(driver().nccl.ncclAllReduce(data, data, kKiB / sizeof(float), ncclFloat, ncclSum, rank.communicator,
                                          rank.stream),
              ncclSuccess);
    return Status();
  }

  std::vector<CUdeviceptr> memory_ = std::vector<CUdeviceptr>(8);
};

TEST_F(BusyPeer, FailsARevokeAtTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL's first collective connects the ranks, so those on time wait on the host");
  AllowLeak("primary context");  // the peer's: a thread still waits in it
  PoolConfiguration configuration;
  configuration.name = "shared";
  configuration.deadline_ms = 200;
  const PoolHandle handle = runtime().CreatePool(configuration).value();
  const std::shared_ptr<Pool> pool = runtime().pools().Find(handle).value();
  if (!pool->segments().peers.Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
  ExpectOk(Run([&](Rank& rank) { return rank.number == 0 ? Status() : SumOn(rank); }));
  ExpectFailure(pool->segments().peers.Revoke({1}), StatusCode::kDeadlineExceeded,
                "device 1 is still busy after 200 ms");
  ExpectOk(Run([&](Rank& rank) { return rank.number == 0 ? SumOn(rank) : Status(); }));
  ForEach([&](Rank& rank) {
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuMemFree(memory_[static_cast<size_t>(rank.number)]), CUDA_SUCCESS);
  });
  ExpectOk({pool->segments().peers.Revoke({1}), runtime().DestroyPool(handle)});
}

}  // namespace
}  // namespace commpool::internal::testing
