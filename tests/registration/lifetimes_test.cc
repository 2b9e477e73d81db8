// Registrations when a communicator or a pool ends, as src/library/registration/reference.md lists it.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Lifetimes : public SymmetricTest {
 protected:
  void SetUp() override {
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    CreateAndReserve(2 * kMiB);
  }

  ncclComm_t Of(const std::vector<ncclComm_t>& communicators, const Rank& rank) const {
    return communicators[static_cast<size_t>(rank.number)];
  }
  Statuses Register(const std::vector<ncclComm_t>& communicators) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(Of(communicators, rank)); });
  }
  Statuses Deregister(const std::vector<ncclComm_t>& communicators) {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(Of(communicators, rank)); });
  }
  Statuses Abandon(const std::vector<ncclComm_t>& communicators) {
    return Run([&](Rank& rank) {
      return PoolOf(rank).mode().AbandonCommunicator(Of(communicators, rank), CommunicatorLife::kEnded);
    });
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
  uint64_t FreeMemory(const Rank& rank) const {
    const ContextGuard current(driver(), rank.context);
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    EXPECT_EQ(driver().cuda.cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
  }
};

TEST_F(Lifetimes, ACommunicatorDestroyedWithItsWindowsIsReported) {
  COMMPOOL_REQUIRE_EMULATOR("undefined on hardware");
  std::vector<ncclComm_t> second = group().ConnectFrom(0);
  ExpectOk(Register(second));
  const std::vector<ncclComm_t> ended = second;
  group().Destroy(second);
  EXPECT_FALSE(TakeReports().empty());
  ExpectOk(Abandon(ended));  // the rest; the memory stays, registered with nobody
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

TEST_F(Lifetimes, AnAbortedCommunicatorIsAbandonedAsOftenAsOneLikes) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  const std::vector<ncclComm_t> second = group().ConnectFrom(0);
  ExpectOk(Register(second));
  ForEach([&](Rank& rank) { EXPECT_EQ(driver().nccl.ncclCommAbort(Of(second, rank)), ncclSuccess); });
  ExpectOk(Abandon(second));
  ExpectOk(Abandon(second));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  const uint64_t calls = CallCount("ncclCommWindowDeregister");
  ExpectOk(Deregister(second));  // nothing is registered with it
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls);
}

TEST_F(Lifetimes, ALiveCommunicatorIsAbandonedWithItsWindows) {
  COMMPOOL_REQUIRE_EMULATOR("calls are counted");
  const std::vector<ncclComm_t> second = group().ConnectFrom(0);
  ExpectOk(Register(second));
  const uint64_t calls = CallCount("ncclCommWindowDeregister");
  for (int number = 0; number <= last(); ++number) {  // one after another: no rank waits for the next
    Rank& rank = group()[number];
    ExpectOk({PoolOf(rank).mode().AbandonCommunicator(Of(second, rank), CommunicatorLife::kAlive)});
    ExpectOk({PoolOf(rank).mode().AbandonCommunicator(Of(second, rank), CommunicatorLife::kAlive)});
    EXPECT_EQ(driver().nccl.ncclCommAbort(Of(second, rank)), ncclSuccess);
  }
  EXPECT_EQ(CallCount("ncclCommWindowDeregister"), calls + static_cast<uint64_t>(group().size()));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  EXPECT_EQ(PoolOf(group()[0]).Statistics().held_bytes, 0u);
  ExpectOk(Reserve(4 * kMiB));
}

TEST_F(Lifetimes, EachRankAloneClosesAPoolWhoseHomeItAbandonedAndGetsTheMemoryBack) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  for (int number = 0; number <= last(); ++number) {
    Rank& rank = group()[number];
    const uint64_t before = FreeMemory(rank);
    const CUdeviceptr block = PoolOf(rank).Allocate(kMiB, KeyOfStream(rank.stream, rank.number)).value();
    ExpectOk({LeaveHome(rank, CommunicatorLife::kAlive)});
    ExpectFailure(PoolOf(rank).Close(), StatusCode::kFailedPrecondition,
                  "still has 1 live block: free them before close()");
    ExpectOk({runtime().Free(block), PoolOf(rank).Close(), PoolOf(rank).Close()});
    EXPECT_EQ(FreeMemory(rank), before + 2 * kMiB);
    EXPECT_EQ(PoolOf(rank).Statistics().held_bytes, 0u);
  }
}

TEST_F(Lifetimes, AnAbortBeforeAbandonCostsTheWindowsMemoryAndIsToldSo) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  AllowLeak("reserved addresses");
  AllowLeak("physical memory");
  Rank& rank = group()[0];
  const uint64_t before = FreeMemory(rank);
  ::testing::internal::CaptureStderr();
  ExpectOk({LeaveHome(rank, CommunicatorLife::kEnded)});
  EXPECT_NE(
      ::testing::internal::GetCapturedStderr().find("ended before abandon(), so NCCL 2.28.9 holds 2 MiB of windows"),
      std::string::npos);
  EXPECT_EQ(PoolOf(rank).Statistics().held_bytes, 2 * kMiB);
  ExpectOk({PoolOf(rank).Close()});
  EXPECT_EQ(FreeMemory(rank), before);
  for (int number = 1; number <= last(); ++number) {
    ExpectOk({LeaveHome(group()[number], CommunicatorLife::kAlive), PoolOf(group()[number]).Close()});
  }
}

TEST_F(Lifetimes, APoolWhoseHomeWasAbortedCanStillBeClosed) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("reserved addresses");
  AllowLeak("physical memory");
  ExpectOk(Run([&](Rank& rank) {
    EXPECT_EQ(driver().nccl.ncclCommAbort(rank.communicator), ncclSuccess);
    Status status = PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kEnded);
    rank.communicator = nullptr;
    return status;
  }));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(4 * kMiB));  // the pool has its own channel
  ExpectOk(Trim(0));
  ExpectOk(Close());
}

TEST_F(Lifetimes, ASplitHasNoRegistrationsAndItsParentKeepsThem) {
  std::vector<ncclComm_t> split(static_cast<size_t>(group().size()));
  ForEach([&](Rank& rank) {
    ncclComm_t& child = split[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().nccl.ncclCommSplit(rank.communicator, 0, rank.number, &child, nullptr), ncclSuccess);
  });
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  Rank& rank = group()[0];
  EXPECT_TRUE(runtime().windows().Find(rank.communicator, blocks[0]));
  EXPECT_FALSE(runtime().windows().Find(Of(split, rank), blocks[0]));
  ExpectOk(Register(split));
  EXPECT_TRUE(runtime().windows().Find(Of(split, rank), blocks[0]));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  ExpectOk(Deregister(split));
  group().Destroy(split);
  EXPECT_TRUE(runtime().windows().Find(rank.communicator, blocks[0]));
  Free(blocks);
}

TEST_F(Lifetimes, TheRanksOfAShrunkCommunicatorRegisterWithIt) {
  if (driver().nccl.ncclCommShrink == nullptr) GTEST_SKIP() << "ncclCommShrink came with NCCL 2.27";
  std::vector<ncclComm_t> shrunk(static_cast<size_t>(group().size()));
  const int last = group().size() - 1;
  ExpectOk(Run([&](Rank& rank) {
    if (rank.number == last) return Status();
    int excluded = last;
    ncclComm_t& child = shrunk[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().nccl.ncclCommShrink(rank.communicator, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
              ncclSuccess);
    return Status();
  }));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Register(shrunk));
  EXPECT_EQ(RegisteredSegments(0), 2u);
  EXPECT_EQ(RegisteredSegments(last), 1u);
  ExpectOk(Deregister(shrunk));
  group().Destroy(shrunk);
}

TEST_F(Lifetimes, ARevokedCommunicatorIsAbandoned) {
  COMMPOOL_REQUIRE_EMULATOR("an abort would leave windows to NCCL");
  AllowLeak("physical memory");
  if (driver().nccl.ncclCommRevoke == nullptr) GTEST_SKIP() << "ncclCommRevoke came with NCCL 2.28.7";
  const std::vector<ncclComm_t> second = group().ConnectFrom(0);
  ExpectOk(Register(second));
  ForEach([&](Rank& rank) {
    EXPECT_EQ(driver().nccl.ncclCommRevoke(Of(second, rank), NCCL_REVOKE_DEFAULT), ncclSuccess);
    EXPECT_EQ(driver().nccl.ncclCommAbort(Of(second, rank)), ncclSuccess);
  });
  ExpectOk(Abandon(second));
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Reserve(4 * kMiB));
  EXPECT_EQ(RegisteredSegments(0), 2u);
}

TEST_F(Lifetimes, ASegmentGivenBackHasNoWindow) {
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  Rank& rank = group()[0];
  EXPECT_TRUE(runtime().windows().Find(rank.communicator, blocks[0]));
  Free(blocks);
  ExpectOk(Trim(0));
  EXPECT_EQ(RegisteredSegments(0), 0u);
  EXPECT_FALSE(runtime().windows().Find(rank.communicator, blocks[0]));
}

TEST_F(Lifetimes, APoolDestroyedWithLiveBlocksKeepsItsWindowsAndItsBlocks) {
  COMMPOOL_REQUIRE_EMULATOR("it leaks for good");
  for (const char* kept : {"reserved addresses", "mapping", "physical memory", "primary context", "registration"}) {
    AllowLeak(kept);
  }
  const std::vector<CUdeviceptr> blocks = Allocate(kMiB);
  ::testing::internal::CaptureStderr();
  DestroyPools();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("stay mapped"), std::string::npos);
  ExpectOk(Run([&](Rank& rank) {
    const CUdeviceptr block = blocks[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuMemsetD8Async(block, 1, kMiB, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    return runtime().Free(block);
  }));
  End();
  static_cast<void>(TakeReports());  // reports communicators that end with windows
}

}  // namespace
}  // namespace commpool::internal::testing
