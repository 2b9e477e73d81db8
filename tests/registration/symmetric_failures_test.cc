// A symmetric pool's call fails on one rank, or differs between ranks: then it fails on all ranks.
#include <algorithm>

#include "tests/pool/held_work.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricPoolFailure : public SymmetricTest {
 protected:
  // Where the last rank asks for something else.
  Statuses CreateOtherwise(const std::function<void(PoolConfiguration&)>& otherwise) {
    return Create([&](const Rank& rank, PoolConfiguration& configuration) {
      if (rank.number == last()) otherwise(configuration);
    });
  }
  Status TryOn(const Rank& rank, uint64_t bytes) { return AllocateOn(rank, bytes).status(); }
  Statuses TryOnAll(uint64_t bytes) {
    return Run([=, this](Rank& rank) { return TryOn(rank, bytes); });
  }
};

using SymmetricPoolFailureUnderFaults = UnderFaults<SymmetricPoolFailure>;

// Each rank's message names its own pool first, then the rank that failed and the reason: the same on all.
void ExpectAlike(const Statuses& statuses, StatusCode code, const std::string& fragment) {
  ExpectFailure(statuses, code, fragment);
  const auto reason = [](const Status& status) { return status.message().substr(status.message().find("rank ")); };
  for (const Status& status : statuses) EXPECT_EQ(reason(status), reason(statuses[0]));
}

TEST_F(SymmetricPoolFailureUnderFaults, ACreateWhoseRanksCannotMeetNamesThePool) {
  const InjectedFault on_all({.call = "cuStreamCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .count = group().size()});
  ExpectFailure(Create(), StatusCode::kOutOfMemory, "pool gradients: ");
}

TEST_F(SymmetricPoolFailure, ACreateWithADeviceThatIsNotThereFailsOnAll) {
  ExpectAlike(CreateOtherwise([](PoolConfiguration& configuration) { configuration.backing.placement.device = 999; }),
              StatusCode::kInvalidArgument, LastRank() + " cannot create: ");
}

TEST_F(SymmetricPoolFailure, ACreateOnAnotherDeviceThanTheCommunicatorsFailsOnAll) {
  ExpectFailure(CreateOtherwise([](PoolConfiguration& configuration) { configuration.backing.placement.device = 0; }),
                StatusCode::kInvalidArgument, "symmetric_across is a communicator of device " + std::to_string(last()));
}

TEST_F(SymmetricPoolFailure, ACreateWithABackingWithoutWindowsFailsOnAll) {
  ExpectFailure(Create([](const Rank& rank, PoolConfiguration& configuration) {
                  if (rank.number == 0) configuration.backing.kind = BackingKind::kCuda;
                }),
                StatusCode::kNotSupported, "rank 0 cannot create: ");
}

TEST_F(SymmetricPoolFailure, ACreateWithOtherOptionsFailsOnAll) {
  ExpectFailure(CreateOtherwise([](PoolConfiguration& configuration) { configuration.alignment_bytes = 4096; }),
                StatusCode::kDisagreement, "ranks disagree on the pool's options: alignment: rank 0 512 bytes, rank ");
  ExpectFailure(CreateOtherwise([](PoolConfiguration& configuration) { configuration.limit_bytes = kGiB; }),
                StatusCode::kDisagreement, "options: limit: rank 0 none, rank ");
}

TEST_F(SymmetricPoolFailureUnderFaults, ARankOutOfMemoryFailsAllAndThePoolIsAsBefore) {
  CreateAndReserve(2 * kMiB);
  ExpectAlike(
      With({.call = "cuMemCreate", .result = CUDA_ERROR_OUT_OF_MEMORY, .skip = 1}, [&] { return Reserve(4 * kMiB); }),
      StatusCode::kOutOfMemory, "making a segment of 4 MiB failed on rank ");
  ExpectOnAll(2 * kMiB, 1);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(ReservedBytes(0), 6 * kMiB);
}

TEST_F(SymmetricPoolFailureUnderFaults, AFailedMappingFailsAllAndThePoolIsAsBefore) {
  ExpectOk(Create());
  for (const char* call : {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const InjectedFault one({.call = call, .result = CUDA_ERROR_INVALID_VALUE, .skip = last()});
    ExpectFailure(Reserve(2 * kMiB), StatusCode::kDriverError, call);
    EXPECT_EQ(ReservedBytes(0), 0u);
  }
}

TEST_F(SymmetricPoolFailureUnderFaults, AFailedRegistrationIsUndone) {
  ExpectOk(Create());
  {
    // Runs on every rank: a missing rank would keep the others inside NCCL's call.
    const InjectedFault all({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = group().size()});
    ExpectFailure(Reserve(2 * kMiB), StatusCode::kCommunicatorError, "registering a segment of 2 MiB failed on rank 0");
  }
  ExpectOnAll(0, 0);
  ExpectOk(Reserve(2 * kMiB));
}

TEST_F(SymmetricPoolFailure, ReservesOfDifferentSizesFailOnAll) {
  ExpectOk(Create());
  ExpectFailure(Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(rank.number == last() ? kMiB : 2 * kMiB); }),
                StatusCode::kDisagreement, "ranks disagree on the bytes of reserve: rank 0: 2097152 bytes");
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
    EXPECT_EQ(TryOn(rank, 1000).code(), StatusCode::kExhausted);
    EXPECT_EQ(TryOn(rank, rank.number == last() ? 3000 : 2000).code(), StatusCode::kExhausted);
  });
  for (int time = 0; time < 2; ++time) {
    ExpectAlike(Reserve(2 * kMiB), StatusCode::kDisagreement,
                "rank 0 made refused allocation of 2,000 bytes (call 2), " + LastRank() +
                    " made refused allocation of 3,000 bytes (call 2)");
  }
}

TEST_F(SymmetricPoolFailure, ExhaustionNamesTheBytesToReserve) {
  const HeldBlocks blocks = CreateAndHold(2 * kMiB, kMiB);
  const Statuses statuses = TryOnAll(3 * kMiB - 1000);
  const uint64_t needed = 3 * kMiB - 512;  // the request, rounded up
  ExpectFailure(statuses, StatusCode::kExhausted,
                "has no free block of " + FormatBytes(3 * kMiB - 1000) +
                    ": 2 MiB are reserved, the largest free block is 1 MiB. On every rank: reserve(" +
                    std::to_string(needed) + ")");
  EXPECT_EQ(statuses[0].message().find("reclaim"), std::string::npos) << "no segment is as large";
  EXPECT_EQ(StatisticsOf(0).failed_allocations, 1u);
  ExpectFailure(TryOnAll(2 * kMiB), StatusCode::kExhausted,
                "which is 2 MiB, or reclaim() once every rank has freed as much");
  ExpectOk(Reserve(needed));
  Free(Allocate(3 * kMiB - 1000));
}

TEST_F(SymmetricPoolFailure, ExhaustionOfOrderedFreesHasNothingToReclaim) {
  const HeldBlocks blocks = CreateAndHold(2 * kMiB, kMiB, Ordered);
  const Statuses statuses = TryOnAll(2 * kMiB);
  ExpectFailure(statuses, StatusCode::kExhausted, "On every rank: reserve(2097152)");
  EXPECT_EQ(statuses[0].message().find("reclaim"), std::string::npos) << statuses[0].message();
}

TEST_F(SymmetricPoolFailure, ImpossibleSizesFailOnAll) {
  ExpectOk(Create());
  ExpectFailure(Reserve(0), StatusCode::kInvalidArgument, "reserve of 0 bytes");
  ExpectFailure(Reserve(UINT64_MAX), StatusCode::kInvalidArgument, "overflows");
  ExpectFailure(Reserve(uint64_t{1} << 50), StatusCode::kOutOfMemory, " left");
  ExpectFailure(TryOnAll(0), StatusCode::kInvalidArgument, "gradients");
  ExpectFailure(TryOnAll(UINT64_MAX), StatusCode::kInvalidArgument, "gradients");
  ExpectOk(Reserve(2 * kMiB));
}

TEST_F(SymmetricPoolFailure, ATrimKeepsWhatItIsAskedToKeep) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, 2 * kMiB);
  ExpectOk(Reserve(4 * kMiB));
  Free(blocks);
  ExpectOk(Trim(6 * kMiB));
  EXPECT_EQ(ReservedBytes(0), 6 * kMiB);
  ExpectOk(Trim(2 * kMiB));
  EXPECT_EQ(ReservedBytes(last()), 2 * kMiB) << "the last segment went";
}

TEST_F(SymmetricPoolFailureUnderFaults, ATrimThatOneDriverRefusesLeavesTheRanksAlike) {
  ExpectOk(Create());
  for (const uint64_t bytes : {2 * kMiB, 4 * kMiB}) ExpectOk(Reserve(bytes));
  const Statuses statuses = With({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN}, [&] { return Trim(0); });
  EXPECT_EQ(std::count_if(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); }), last())
      << "the other ranks have nothing to tell";
  ExpectOnAll(0, 0);
  ExpectOk(Reserve(2 * kMiB));
  Free(Allocate(kMiB));
  ExpectOk(Verify());
}

// The other ranks are gone by then, so this one closes alone.
TEST_F(SymmetricPoolFailureUnderFaults, ACloseThatOneDriverRefusesIsDoneOnceThatRankRepeatsIt) {
  CreateAndReserve(2 * kMiB);
  const Statuses statuses = With({.call = "cuMemUnmap", .result = CUDA_ERROR_UNKNOWN}, [&] { return Close(); });
  int refused = 0;
  for (int rank = 0; rank <= last(); ++rank) {
    Pool& pool = PoolOf(group()[rank]);
    const bool here = !statuses[static_cast<size_t>(rank)].ok();
    refused += here ? 1 : 0;
    const MemoryAccount& account = Account(rank);
    EXPECT_EQ(account.taken(), here ? 2 * kMiB : 0u);
    EXPECT_EQ(pool.basis().life.closed(), !here);
    EXPECT_EQ(pool.mode().Reserve(kMiB).code(), StatusCode::kFailedPrecondition) << "it asks no other rank";
    EXPECT_TRUE(pool.Close().ok());
    EXPECT_TRUE(pool.basis().life.closed());
    EXPECT_EQ(account.taken(), 0u);
  }
  EXPECT_EQ(refused, 1);
}

Fault NoDeregistration(int count = 1) {
  return {.call = "ncclCommWindowDeregister", .result = ncclInternalError, .count = count};
}

TEST_F(SymmetricPoolFailureUnderFaults, ATrimThatCouldNotEndAWindowLeavesAllRanksTheirs) {
  CreateAndReserve(2 * kMiB);
  ExpectAlike(With(NoDeregistration(), [&] { return Trim(0); }), StatusCode::kCommunicatorError,
              "deregistering failed on rank ");
  ExpectOnAll(2 * kMiB, 1);
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  EXPECT_EQ(OffsetsOf(blocks), std::vector<uint64_t>(blocks.size(), 0));
  Free(blocks);
  ExpectOk(Trim(0));
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricPoolFailureUnderFaults, MemoryWhoseWindowCouldNotBeEndedStaysUntilItIs) {
  CreateAndReserve(2 * kMiB);
  {
    const InjectedFault always(NoDeregistration(100));
    ExpectFailure(Trim(0), StatusCode::kCommunicatorError, "; then pool gradients");
    ExpectFailure(Close(), StatusCode::kCommunicatorError, "deregistering failed on rank 0");
  }
  EXPECT_EQ(ReservedBytes(0), 2 * kMiB);
  ExpectOk(Close());
  EXPECT_EQ(ReservedBytes(0), 0u);
}

TEST_F(SymmetricPoolFailureUnderFaults, ADeregisterThatFailedOnOneRankMayBeRepeated) {
  CreateAndReserve(2 * kMiB);
  const std::vector<ncclComm_t>& second = Another();
  ExpectOk(Register(second));
  ExpectFailure(With(NoDeregistration(), [&] { return Deregister(second); }), StatusCode::kCommunicatorError,
                "deregistering failed on rank ");
  ExpectOk(Reserve(4 * kMiB));  // with home alone: no rank waits for another on what they have left
  ExpectOk(Deregister(second));
  ExpectOnAll(6 * kMiB, 2);
}

TEST_F(SymmetricPoolFailure, ALimitHoldsOnAll) {
  CreateAndReserve(4 * kMiB,
                   [](const Rank&, PoolConfiguration& configuration) { configuration.limit_bytes = 4 * kMiB; });
  ExpectFailure(Reserve(6 * kMiB), StatusCode::kOutOfMemory, "would exceed its limit of 4 MiB");
}

TEST_F(SymmetricPoolFailure, CloseWithALiveBlockOnOneRankIsRefusedOnAll) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB);
  FreeButLast(blocks);
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, LastRank() + " cannot close: ");
  EXPECT_EQ(ReservedBytes(0), 2 * kMiB);
  ExpectOk({PoolOf(group()[last()]).Free(blocks.back())});
  Free(Allocate(kMiB));  // the pool is as open as before
}

TEST_F(SymmetricPoolFailure, ASecondFreeIsRefused) {
  const std::vector<CUdeviceptr> blocks = CreateAndAllocate(2 * kMiB, kMiB);
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
  ExpectFailure(Register(Homes()), closed, "is closed");
  ExpectFailure(TryOnAll(1), closed, "is closed");
  ExpectOk(Deregister(Homes()));  // nothing is registered
}

TEST_F(SymmetricPoolFailure, APoolDestroyedWithoutCloseWarnsAndKeepsItsWindows) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeaks({"reserved addresses", "mapping", "physical memory", "primary context", "registration"});
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
  // What the last rank waits for by its own deadline, the others would not wait for.
  Adjust LastWaitsLongest(Streams streams) const {
    return [=, last = last()](const Rank& rank, PoolConfiguration& configuration) {
      configuration.streams = streams;
      configuration.deadline_ms = rank.number == last ? 5000 : 4000;
    };
  }
  Statuses ReserveWithoutTheLast() {
    return RunButLast([&](Rank& rank) { return PoolOf(rank).mode().Reserve(2 * kMiB); });
  }
};

TEST_F(LateRank, IsNamedAndThePoolStaysBroken) {
  ExpectOk(Create(Deadline(1000)));
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kDeadlineExceeded, LastRank() + ": ");
  EXPECT_EQ(ReservedBytes(0), 0u);
  ExpectFailure(PoolOf(group()[0]).Close(), StatusCode::kDeadlineExceeded, "an earlier call of the ranks failed");
  DestroyPools();  // the pool holds nothing
}

// What it waits for may as well take effect in a later call.
TEST_F(LateRank, WhoseDeviceIsBusyComesInTimeAllTheSame) {
  CreateAndReserve(2 * kMiB, LastWaitsLongest(Streams::kMayDie));
  HeldStream held(driver().cuda, group()[last()].stream);
  ExpectOk(Run(
      [&](Rank& rank) { return runtime().Free(runtime().AllocateFrom(HandleOf(rank), kMiB, rank.stream).value()); }));
  ExpectOk(Verify());
  held.End();
}

TEST_F(LateRank, WhoseDeviceStaysBusyIsNamedByEachCallThatWouldEndItsWindows) {
  CreateAndReserve(2 * kMiB, LastWaitsLongest(Streams::kOutlive));
  HeldStream held(driver().cuda, group()[last()].stream);
  for (const auto& call : std::initializer_list<std::function<Statuses()>>{
           [&] { return Trim(0); }, [&] { return Deregister(Homes()); }, [&] { return Close(); },
           [&] { return Sleep({.graphs = LiveGraphs::kDiscarded}); }}) {
    const Statuses statuses = call();
    ExpectFailure(statuses, StatusCode::kDeadlineExceeded,
                  " failed on " + LastRank() + ": device " + std::to_string(last()) +
                      " is still busy after 2500 ms, nothing was changed");
    EXPECT_EQ(statuses.front().message().find("; then "), std::string::npos) << statuses.front().message();
  }
  held.End();
  ExpectOnAll(2 * kMiB, 1);
  Free(Allocate(kMiB));
}

// A call after the communicator's end releases what the all-gather used.
TEST_F(LateRank, ThatMakesNoPoolCostsNoMemoryOnceTheCommunicatorIsAborted) {
  COMMPOOL_REQUIRE_EMULATOR("its leaks are looked for");
  const std::vector<std::string> before = EmulatorLeaks();
  const std::vector<ncclComm_t> home = group().ConnectFrom(0);
  ExpectFailure(RunButLast([&](Rank& rank) {
                  PoolConfiguration configuration = Configured(rank);
                  configuration.home = home[rank.index()];
                  configuration.deadline_ms = 300;
                  return runtime().CreatePool(configuration).status();
                }),
                StatusCode::kDeadlineExceeded, "not every rank creates");
  EXPECT_GT(EmulatorLeaks().size(), before.size()) << "NCCL's kernels wait, and use it";
  Abort(home);
  ExpectOk(Create());
  ExpectOk(Close());
}

TEST_F(LateRank, ThatDestroyedItsPoolIsNamedAtOnce) {
  ExpectOk(Create());
  ReleasePoolOf(last());
  ExpectFailure(ReserveWithoutTheLast(), StatusCode::kRemoteFailure, LastRank() + ": ");
  DestroyPools();
}

// A peer's work never ends, because a rank stays away from its collective. A revoke waits for it no longer than the
// pool's deadline.

class BusyPeer : public SymmetricTest {};

TEST_F(BusyPeer, FailsARevokeAtTheDeadline) {
  COMMPOOL_REQUIRE_EMULATOR("NCCL's first collective connects the ranks, so those on time wait on the host");
  AllowLeak("primary context");  // the peer's: a thread still waits in it
  PoolConfiguration configuration;
  configuration.name = "shared";
  configuration.deadline_ms = 200;
  const PoolHandle handle = runtime().CreatePool(configuration).value();
  const std::shared_ptr<Pool> pool = runtime().pools().Find(handle).value();
  if (!pool->segments().peers.Grant({1}).ok()) GTEST_SKIP() << "needs a link between devices 0 and 1";
  ForEach([&](Rank& rank) {
    if (rank.number != 0) Reduce(rank, rank.communicator);
  });
  ExpectFailure(pool->segments().peers.Revoke({1}), StatusCode::kDeadlineExceeded,
                "device 1 is still busy after 200 ms");
  ForEach([&](Rank& rank) {
    if (rank.number == 0) Reduce(rank, rank.communicator);
  });
  ForEach([&](Rank& rank) { EndReduce(rank); });
  ExpectOk({pool->segments().peers.Revoke({1}), runtime().DestroyPool(handle)});
}

}  // namespace
}  // namespace commpool::internal::testing
