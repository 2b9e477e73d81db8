// Symmetric pools and further communicators: register_with, deregister, abandon.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricRegistration : public SymmetricTest {
 protected:
  void Prepare() override { second_ = Another(1); }  // without rank 0

  ncclComm_t SecondOf(const Rank& rank) const { return second_[rank.index()]; }
  Statuses RegisterSecond() { return Register(second_); }
  void CreateAndRegister() {
    CreateAndReserve(2 * kMiB);
    ExpectOk(RegisterSecond());
  }
  Statuses DeregisterSecond() { return Deregister(second_); }

  std::vector<ncclComm_t> second_;
};

TEST_F(SymmetricRegistration, ExistingAndLaterSegmentsGetAWindowOnEachCommunicator) {
  CreateAndRegister();
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(RegisteredSegments(1), 2u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  EXPECT_EQ(RegisteredSegments(1), 4u);

  const std::vector<CUdeviceptr> blocks = Allocate(4 * kMiB);
  Rank& rank = group()[1];
  const WindowPlace home = WindowOf(rank, blocks[1]).value();
  const WindowPlace other = runtime().windows().Find(SecondOf(rank), blocks[1]).value();
  EXPECT_NE(home.window, other.window);
  EXPECT_EQ(home.offset, other.offset);
  EXPECT_FALSE(runtime().windows().Find(SecondOf(rank), blocks[0]));
  Free(blocks);

  ExpectOk(DeregisterSecond());
  EXPECT_EQ(RegisteredSegments(1), 2u);
}

TEST_F(SymmetricRegistration, ASecondRegisterWithDoesNothing) {
  CreateAndRegister();
  const uint64_t calls = CallCount("ncclCommWindowRegister");
  ExpectOk(RegisterSecond());
  ExpectOk(Register(Homes()));
  EXPECT_EQ(CallCount("ncclCommWindowRegister"), calls);
  EXPECT_EQ(RegisteredSegments(1), 2u);
  ExpectOk(DeregisterSecond());
  ExpectOk(DeregisterSecond());  // nor does a second deregister
}

TEST_F(SymmetricRegistration, AFailedRegisterWithIsUndone) {
  COMMPOOL_REQUIRE_EMULATOR("a fault is injected");
  CreateAndReserve(2 * kMiB);
  ExpectFailure(With({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = last()},
                     [&] { return RegisterSecond(); }),
                StatusCode::kCommunicatorError, "registering with a communicator failed on rank 1");
  EXPECT_EQ(RegisteredSegments(1), 1u);
  ExpectOk(Reserve(4 * kMiB));  // with home alone
  EXPECT_EQ(RegisteredSegments(1), 2u);
}

TEST_F(SymmetricRegistration, ACommunicatorOfAnotherDeviceFailsOnAll) {
  ExpectOk(Create());
  ExpectFailure(Run([&](Rank& rank) {
                  return PoolOf(rank).mode().RegisterWith(rank.number == 0 ? group()[1].communicator : nullptr);
                }),
                StatusCode::kInvalidArgument, "rank 0 cannot register_with: the communicator is of device 1");
}

TEST_F(SymmetricRegistration, AnAbandonedCommunicatorIsCalledNoMore) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  CreateAndRegister();
  Abort(second_);
  const uint64_t calls = CallCount("*");
  for (Rank& rank : group()) {
    ExpectOk({PoolOf(rank).mode().AbandonCommunicator(SecondOf(rank), CommunicatorLife::kEnded)});
  }
  EXPECT_EQ(CallCount("*"), calls);
  EXPECT_EQ(RegisteredSegments(1), 1u);
  ForgetOthers();
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(SymmetricRegistration, APoolWithoutItsHomeRegistrationGrowsUnregistered) {
  CreateAndReserve(2 * kMiB);
  ExpectOk(Deregister(Homes()));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Register(Homes()));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

// Nonblocking communicators (config.blocking = 0): registration polls every call until its end.

class Nonblocking : public SymmetricTest {};

TEST_F(Nonblocking, AHomeServesEveryCollectiveCall) {
  std::vector<ncclComm_t> home = group().ConnectNonblocking();
  CreateAndReserve(
      2 * kMiB, [&](const Rank& rank, PoolConfiguration& configuration) { configuration.home = home[rank.index()]; });
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Trim(0));
  ExpectOk(Close());
  group().Destroy(home);
}

TEST_F(Nonblocking, AFurtherCommunicatorIsMetRegisteredAndLeft) {
  CreateAndReserve(2 * kMiB);
  std::vector<ncclComm_t> second = group().ConnectNonblocking();
  ExpectOk(Register(second));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Deregister(second));
  group().Destroy(second);
}

// A reserve fails in the registration on one rank, and another rank cannot undo its own. Then no rank gives its memory
// back, because peers may still reach it through the window that stayed.

class UndoneRegistration : public SymmetricTest {
 protected:
  void Prepare() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected");
    alone_ = group().ConnectFrom(last());  // the last rank's own: it may fail there and hold nobody
    ExpectOk(Create());
    ExpectOk(Register(alone_));
  }
  void TearDown() override {
    if (!alone_.empty()) EndAlone();
    SymmetricTest::TearDown();
  }

  void EndAlone() {
    ExpectOk(Deregister(alone_));
    group().Destroy(alone_);
    alone_.clear();
  }

  // Home gets its window on every rank; then the last rank fails on the communicator of its own.
  void ExpectThatAReserveFails() {
    const Fault one = {.call = "ncclCommWindowRegister", .result = ncclInternalError, .skip = group().size()};
    ExpectFailure(With(one, [&] { return Reserve(kBytes); }), StatusCode::kCommunicatorError,
                  "registering a segment of 2 MiB failed on " + LastRank());
  }

  static constexpr uint64_t kBytes = 2 * kMiB;

 private:
  std::vector<ncclComm_t> alone_;
};

TEST_F(UndoneRegistration, GivesTheMemoryBackWhereEveryRankHasUndoneIt) {
  const std::vector<size_t> before = FreeMemory();
  ExpectThatAReserveFails();
  EXPECT_EQ(FreeMemory(), before);
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(kBytes));
}

TEST_F(UndoneRegistration, KeepsTheMemoryOfAllRanksWhereOneHasNot) {
  AllowLeaks({"reserved addresses", "mapping", "physical memory", "primary context"});
  const std::vector<size_t> before = FreeMemory();
  {
    // The last rank undoes its registration before the others learn of its failure. So the second undo is one of
    // theirs.
    const InjectedFault second({.call = "ncclCommWindowDeregister", .result = ncclInternalError, .skip = 1});
    ExpectThatAReserveFails();
  }
  const std::vector<size_t> after = FreeMemory();
  for (size_t rank = 0; rank < before.size(); ++rank) EXPECT_EQ(before[rank] - after[rank], kBytes) << "rank " << rank;
  EXPECT_TRUE(EmulatorReports().empty()) << "nothing that is registered was unmapped";
  EXPECT_EQ(ReservedBytes(0), 0u) << "no block is ever served from it";
  ExpectOk(Reserve(kBytes));  // the pool still works
  EndAlone();
  ExpectOk(Close());
  const std::vector<size_t> closed = FreeMemory();
  size_t whole = 0;
  for (size_t rank = 0; rank < before.size(); ++rank) whole += closed[rank] == before[rank] ? 1 : 0;
  EXPECT_EQ(whole, before.size() - 1) << "all but the rank whose NCCL holds the memory have given it back";
  EXPECT_TRUE(EmulatorReports().empty()) << "nothing that is registered was unmapped";
  DestroyPools();
  End();  // without a report: close() ended the registration
}

// Registrations when a communicator or a pool ends, as src/library/registration/reference.md lists it.

class Lifetimes : public SymmetricTest {
 protected:
  void Prepare() override { CreateAndReserve(2 * kMiB); }

  static ncclComm_t Of(const std::vector<ncclComm_t>& communicators, const Rank& rank) {
    return communicators[rank.index()];
  }
  // The test ends it.
  std::vector<ncclComm_t> RegisterWithAnother() {
    std::vector<ncclComm_t> second = group().ConnectFrom(0);
    ExpectOk(Register(second));
    return second;
  }
  // The order after a loss; no other rank takes part.
  Status LeaveHome(Rank& rank, CommunicatorLife life) {
    const ContextGuard current(driver(), rank.context);
    const auto abort = [&] { EXPECT_EQ(driver().nccl.ncclCommAbort(rank.communicator), ncclSuccess); };
    if (life == CommunicatorLife::kEnded) abort();
    Status status = PoolOf(rank).mode().AbandonCommunicator(rank.communicator, life);
    if (life == CommunicatorLife::kAlive) abort();
    rank.communicator = nullptr;
    return status;
  }
};

TEST_F(Lifetimes, ACommunicatorDestroyedWithItsWindowsIsReported) {
  COMMPOOL_REQUIRE_EMULATOR("undefined on hardware");
  std::vector<ncclComm_t> second = RegisterWithAnother();
  const std::vector<ncclComm_t> ended = second;
  group().Destroy(second);
  EXPECT_FALSE(TakeReports().empty());
  ExpectOk(Abandon(ended, CommunicatorLife::kEnded));  // the rest; the memory stays, registered with nobody
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

TEST_F(Lifetimes, AnAbortedCommunicatorIsAbandonedAsOftenAsOneLikes) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  const std::vector<ncclComm_t> second = RegisterWithAnother();
  Abort(second);
  ExpectOk(Abandon(second, CommunicatorLife::kEnded));
  ExpectOk(Abandon(second, CommunicatorLife::kEnded));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  const uint64_t calls = CallCount("ncclCommWindowDeregister");
  ExpectOk(Deregister(second));  // nothing is registered with it
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls);
}

TEST_F(Lifetimes, ALiveCommunicatorIsAbandonedWithItsWindows) {
  COMMPOOL_REQUIRE_EMULATOR("calls are counted");
  const std::vector<ncclComm_t> second = RegisterWithAnother();
  const uint64_t calls = CallCount("ncclCommWindowDeregister");
  for (const Rank& rank : group()) {  // one after another: no rank waits for the next
    ExpectOk({PoolOf(rank).mode().AbandonCommunicator(Of(second, rank), CommunicatorLife::kAlive),
              PoolOf(rank).mode().AbandonCommunicator(Of(second, rank), CommunicatorLife::kAlive)});
    Abort({Of(second, rank)});
  }
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls + static_cast<uint64_t>(group().size()));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(StatisticsOf(0).held_bytes, 0u);
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(Lifetimes, EachRankAloneClosesAPoolWhoseHomeItAbandonedAndGetsTheMemoryBack) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  for (Rank& rank : group()) {
    const uint64_t before = FreeMemory()[rank.index()];
    const CUdeviceptr block = AllocateOn(rank, kMiB).value();
    ExpectOk({LeaveHome(rank, CommunicatorLife::kAlive)});
    ExpectFailure(PoolOf(rank).Close(), StatusCode::kFailedPrecondition,
                  "still has 1 live block: free them before close()");
    ExpectOk({runtime().Free(block), PoolOf(rank).Close(), PoolOf(rank).Close()});
    EXPECT_EQ(FreeMemory()[rank.index()], before + 2 * kMiB);
    EXPECT_EQ(PoolOf(rank).Statistics().held_bytes, 0u);
  }
}

TEST_F(Lifetimes, AnAbortBeforeAbandonCostsTheWindowsMemoryAndIsToldSo) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeaks({"reserved addresses", "physical memory"});
  Rank& rank = group()[0];
  const std::vector<size_t> before = FreeMemory();
  ::testing::internal::CaptureStderr();
  ExpectOk({LeaveHome(rank, CommunicatorLife::kEnded)});
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("ended before abandon(), so NCCL 2.28.9 holds 2 MiB of windows"),
      std::string::npos);
  EXPECT_EQ(PoolOf(rank).Statistics().held_bytes, 2 * kMiB);
  ExpectOk({PoolOf(rank).Close()});
  EXPECT_EQ(FreeMemory(), before);
  for (int number = 1; number <= last(); ++number) {
    ExpectOk({LeaveHome(group()[number], CommunicatorLife::kAlive), PoolOf(group()[number]).Close()});
  }
}

TEST_F(Lifetimes, AHomeAbandonedOnOneRankStopsGrowthUntilAllHave) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  ExpectOk({LeaveHome(group()[last()], CommunicatorLife::kAlive)});
  ExpectFailure(Reserve(4 * kMiB), StatusCode::kDisagreement, "home was abandoned on " + LastRank() + " and not on ");
  for (int rank = 0; rank < last(); ++rank) ExpectOk({LeaveHome(group()[rank], CommunicatorLife::kAlive)});
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(Lifetimes, APoolWhoseHomeWasAbortedCanStillBeClosed) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeaks({"reserved addresses", "physical memory"});
  for (Rank& rank : group()) ExpectOk({LeaveHome(rank, CommunicatorLife::kEnded)});
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(4 * kMiB));  // the pool has its own channel
  ExpectOk(Trim(0));
  ExpectOk(Close());
}

TEST_F(Lifetimes, ASplitHasNoRegistrationsAndItsParentKeepsThem) {
  std::vector<ncclComm_t> split = SplitFrom(Homes());
  const HeldBlocks blocks = Hold(kMiB);
  Rank& rank = group()[0];
  EXPECT_TRUE(WindowOf(rank, blocks[0]));
  EXPECT_FALSE(runtime().windows().Find(Of(split, rank), blocks[0]));
  ExpectOk(Register(split));
  EXPECT_TRUE(runtime().windows().Find(Of(split, rank), blocks[0]));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Deregister(split));
  group().Destroy(split);
  EXPECT_TRUE(WindowOf(rank, blocks[0]));
}

TEST_F(Lifetimes, TheRanksOfAShrunkCommunicatorRegisterWithIt) {
  if (driver().nccl.ncclCommShrink == nullptr) GTEST_SKIP() << "ncclCommShrink came with NCCL 2.27";
  std::vector<ncclComm_t> shrunk(static_cast<size_t>(group().size()));
  ExpectOk(RunButLast([&](Rank& rank) {
    int excluded = last();
    ncclComm_t& child = shrunk[rank.index()];
    EXPECT_EQ(driver().nccl.ncclCommShrink(rank.communicator, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
              ncclSuccess);
    return Status();
  }));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Register(shrunk));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  EXPECT_EQ(RegisteredSegments(last()), 1u);
  ExpectOk(Deregister(shrunk));
  group().Destroy(shrunk);
}

TEST_F(Lifetimes, ARevokedCommunicatorIsAbandoned) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  if (driver().nccl.ncclCommRevoke == nullptr) GTEST_SKIP() << "ncclCommRevoke came with NCCL 2.28.7";
  const std::vector<ncclComm_t> second = RegisterWithAnother();
  ForEach([&](Rank& rank) {
    EXPECT_EQ(driver().nccl.ncclCommRevoke(Of(second, rank), NCCL_REVOKE_DEFAULT), ncclSuccess);
    Abort({Of(second, rank)});
  });
  ExpectOk(Abandon(second, CommunicatorLife::kEnded));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

TEST_F(Lifetimes, ASegmentGivenBackHasNoWindow) {
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  Rank& rank = group()[0];
  EXPECT_TRUE(WindowOf(rank, blocks[0]));
  Free(blocks);
  ExpectOk(Trim(0));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  EXPECT_FALSE(WindowOf(rank, blocks[0]));
}

TEST_F(Lifetimes, APoolDestroyedWithLiveBlocksKeepsItsWindowsAndItsBlocks) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeaks({"reserved addresses", "mapping", "physical memory", "primary context", "registration"});
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ::testing::internal::CaptureStderr();
  DestroyPools();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("stay mapped"), std::string::npos);
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = blocks[rank.index()];
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    return runtime().Free(block);
  }));
  End();
  static_cast<void>(TakeReports());  // reports communicators that end with windows
}

}  // namespace
}  // namespace commpool::internal::testing
