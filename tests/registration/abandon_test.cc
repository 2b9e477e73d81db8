// A rank is lost inside NCCL's call, or in a collective. The others abandon their communicator, abort it, close alone
// and get their memory back.
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Abandon : public SymmetricTest {
 protected:
  static constexpr uint64_t kDeadlineMs = 300;

  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected, and addresses that stay out of use are a leak");
    AllowLeak("reserved addresses");
    SymmetricTest::SetUp();
  }

  // With its first reserve.
  void CreateOver(const std::vector<ncclComm_t>& home) {
    CreateAndReserve(2 * kMiB, [&](const Rank& rank, PoolConfiguration& configuration) {
      configuration.home = home[rank.index()];
      configuration.deadline_ms = kDeadlineMs;
    });
  }
  // Waits until all are ready.
  std::vector<ncclComm_t> ConnectAll() {
    std::vector<ncclComm_t> communicators = group().ConnectNonblocking();
    ExpectOk(Run([&](Rank& rank) { return DescribeCommunicator(driver(), communicators[rank.index()]).status(); }));
    return communicators;
  }
  // One rank fails, and the others wait for it in NCCL until the deadline.
  void ReserveUntilTheDeadline(uint64_t bytes) {
    const Statuses statuses =
        With({.call = "ncclCommWindowRegister", .result = ncclInternalError}, [&] { return Reserve(bytes); });
    for (const Status& status : statuses) EXPECT_FALSE(status.ok());
  }
  Status GiveUp(Rank& rank, const std::vector<ncclComm_t>& home) {
    ncclComm_t const mine = home[rank.index()];
    Status status = PoolOf(rank).mode().AbandonCommunicator(mine, CommunicatorLife::kAlive);
    Abort({mine});
    return status;
  }

  std::vector<CUdeviceptr> memory_ = std::vector<CUdeviceptr>(8);
};

TEST_F(Abandon, EndsAtTheDeadlineBesideAKernelThatWaitsForALostRank) {
  AllowLeak("primary context");  // a thread still waits in it
  const std::vector<ncclComm_t> home = group().ConnectFrom(0);
  const std::vector<size_t> before = FreeMemory();
  CreateOver(home);
  ExpectOk(Run([&](Rank& rank) {
    ncclComm_t const mine = home[rank.index()];
    const bool lost = rank.number == last();
    if (!lost) Reduce(rank, mine);
    Status status = PoolOf(rank).mode().AbandonCommunicator(mine, CommunicatorLife::kAlive);
    EXPECT_EQ(RegisteredSegments(rank.number), 0u);
    if (!lost) ExpectFailure(PoolOf(rank).Close(), StatusCode::kDeadlineExceeded, "still busy after 300 ms");
    Abort({mine});
    if (!lost) EndReduce(rank);
    return status.ok() ? PoolOf(rank).Close() : status;
  }));
  EXPECT_EQ(FreeMemory(), before);
}

TEST_F(Abandon, GivesBackTheMemoryWhoseRegistrationNeverFinished) {
  const std::vector<ncclComm_t> home = ConnectAll();
  const std::vector<size_t> before = FreeMemory();
  CreateOver(home);
  ReserveUntilTheDeadline(4 * kMiB);
  EXPECT_EQ(FreeMemory()[0], before[0] - 6 * kMiB) << "nothing is unmapped under NCCL";
  ForEach([&](Rank& rank) { ExpectOk({GiveUp(rank, home), PoolOf(rank).Close()}); });
  EXPECT_EQ(FreeMemory(), before);
  for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(StatisticsOf(rank).held_bytes, 0u);
}

TEST_F(Abandon, GivesThatMemoryBackInARehomeToo) {
  const std::vector<ncclComm_t> home = ConnectAll();
  std::vector<ncclComm_t> other = group().ConnectFrom(0);
  const std::vector<size_t> before = FreeMemory();
  CreateOver(home);
  ReserveUntilTheDeadline(4 * kMiB);
  ExpectOk(Run([&](Rank& rank) { return GiveUp(rank, home); }));
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Rehome(other[rank.index()]); }));
  EXPECT_EQ(FreeMemory()[0], before[0] - 2 * kMiB);
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Reserve(8 * kMiB));
  ExpectOk(Close());
  EXPECT_EQ(FreeMemory(), before);
  group().Destroy(other);
}

// Sets of registrations over nonblocking communicators: rank 0 gives up its window before the others come.
class GivenUpWindows : public Abandon {
 protected:
  void Prepare() override {
    communicators_ = ConnectAll();
    for (size_t rank = 0; rank < communicators_.size(); ++rank) {
      sets_.push_back(std::make_unique<RegistrationSet>(driver(), RegistrationKind::kWindow,
                                                        rank == 0 ? kDeadlineMs : 20000, windows_));
    }
  }

  RegistrationSet& SetOf(int rank) { return *sets_[static_cast<size_t>(rank)]; }
  ncclComm_t CommunicatorOf(int rank) const { return communicators_[static_cast<size_t>(rank)]; }
  Status Add(Rank& rank) {
    void* made = nullptr;
    EXPECT_EQ(driver().nccl.ncclMemAlloc(&made, 2 * kMiB), ncclSuccess);
    const CUdeviceptr memory = memory_[rank.index()] = reinterpret_cast<CUdeviceptr>(made);
    return SetOf(rank.number)
        .Add(DescribeCommunicator(driver(), CommunicatorOf(rank.number)).value(), {{0, memory, 2 * kMiB}});
  }
  void GiveUpOnRankZero() {
    ExpectFailure(Run([&](Rank& rank) { return rank.number == 0 ? Add(rank) : Status(); })[0],
                  StatusCode::kDeadlineExceeded, "did not finish within 300 ms");
  }
  void AddOnTheOthers() {
    ExpectOk(Run([&](Rank& rank) { return rank.number == 0 ? Status() : Add(rank); }));
  }
  void FreeMemoryOf(const Rank& rank) {
    const CUdeviceptr memory = memory_[rank.index()];
    if (memory == 0) return;
    EXPECT_EQ(driver().nccl.ncclMemFree(reinterpret_cast<void*>(memory)), ncclSuccess);
  }

 private:
  std::vector<ncclComm_t> communicators_;
  WindowBook windows_;
  std::vector<std::unique_ptr<RegistrationSet>> sets_;
};

// A stopped rank continues: NCCL makes the window that the others had given up.
TEST_F(GivenUpWindows, AreEndedOnceTheyAreFinished) {
  GiveUpOnRankZero();
  ExpectFailure(SetOf(0).DeregisterSegment(0), StatusCode::kDeadlineExceeded, "has not finished a registration");
  AddOnTheOthers();
  ExpectOk(Run([&](Rank& rank) {
    Status status = SetOf(rank.number).EndUnfinished(CommunicatorOf(rank.number), 20000);
    if (status.ok()) status = SetOf(rank.number).Remove(CommunicatorOf(rank.number));
    FreeMemoryOf(rank);
    Abort({CommunicatorOf(rank.number)});
    return status;
  }));
  EXPECT_EQ(SetOf(0).held_bytes(), 0u);
}

TEST_F(GivenUpWindows, FailInTheAbortWhereTheyAreNotFinished) {
  GiveUpOnRankZero();
  ExpectOk({SetOf(0).EndUnfinished(CommunicatorOf(0), 1)});
  EXPECT_EQ(SetOf(0).held_bytes(), 0u) << "NCCL never had it";
  ForEach([&](Rank& rank) {
    Abort({CommunicatorOf(rank.number)});
    FreeMemoryOf(rank);
  });
}

TEST_F(GivenUpWindows, ThatNcclWouldNotEndAreHeldAndTold) {
  AllowLeak("physical memory");  // NCCL keeps it
  GiveUpOnRankZero();
  AddOnTheOthers();
  ExpectFailure(With({.call = "ncclCommWindowDeregister", .result = ncclSystemError},
                     [&] { return SetOf(0).EndUnfinished(CommunicatorOf(0), 20000); }),
                StatusCode::kCommunicatorError, "ncclCommWindowDeregister");
  EXPECT_EQ(SetOf(0).held_bytes(), 2 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    const Status status = SetOf(rank.number).Remove(CommunicatorOf(rank.number));
    Abort({CommunicatorOf(rank.number)});
    FreeMemoryOf(rank);
    return status;
  }));
}

}  // namespace
}  // namespace commpool::internal::testing
