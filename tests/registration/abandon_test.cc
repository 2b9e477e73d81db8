// A rank is lost inside NCCL's call, or in a collective. The others abandon their communicator, abort it, close alone
// and get their memory back.
#include <algorithm>

#include "tests/registration/nonblocking_ranks.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class Abandon : public SymmetricTest {
 protected:
  static constexpr uint64_t kDeadlineMs = 300;

  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected, and addresses that stay out of use are a leak");
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    AllowLeak("reserved addresses");
  }

  Statuses CreateOver(const std::vector<ncclComm_t>& home) {
    return Create([&](const Rank& rank, PoolConfiguration& configuration) {
      configuration.home = home[static_cast<size_t>(rank.number)];
      configuration.deadline_ms = kDeadlineMs;
    });
  }
  // Waits until all are ready.
  std::vector<ncclComm_t> ConnectAll() {
    std::vector<ncclComm_t> communicators = ConnectNonblocking(group());
    ExpectOk(Run([&](Rank& rank) {
      return DescribeCommunicator(driver(), communicators[static_cast<size_t>(rank.number)]).status();
    }));
    return communicators;
  }
  // An all-reduce of this rank over memory without a window.
  void Reduce(Rank& rank, ncclComm_t communicator) {
    CUdeviceptr& memory = memory_[static_cast<size_t>(rank.number)];
    EXPECT_EQ(driver().cuda.cuMemAlloc(&memory, kKiB), CUDA_SUCCESS);
    auto* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(driver().nccl.ncclAllReduce(data, data, 1, ncclFloat, ncclSum, communicator, rank.stream), ncclSuccess);
  }
  void EndReduce(Rank& rank) {
    EXPECT_EQ(driver().cuda.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver().cuda.cuMemFree(memory_[static_cast<size_t>(rank.number)]), CUDA_SUCCESS);
  }

  // One rank fails, and the others wait for it in NCCL until the deadline.
  void ReserveUntilTheDeadline(uint64_t bytes) {
    const InjectedFault one({.call = "ncclCommWindowRegister", .result = ncclInternalError, .count = 1});
    const Statuses statuses = Reserve(bytes);
    EXPECT_TRUE(std::none_of(statuses.begin(), statuses.end(), [](const Status& status) { return status.ok(); }));
  }
  Status GiveUp(Rank& rank, const std::vector<ncclComm_t>& home) {
    ncclComm_t const mine = home[static_cast<size_t>(rank.number)];
    Status status = PoolOf(rank).mode().AbandonCommunicator(mine, CommunicatorLife::kAlive);
    EXPECT_EQ(driver().nccl.ncclCommAbort(mine), ncclSuccess);
    return status;
  }

  uint64_t FreeMemory() const {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    EXPECT_EQ(driver().cuda.cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return free_bytes;
  }
  std::vector<uint64_t> FreeMemories() {
    std::vector<uint64_t> bytes(static_cast<size_t>(group().size()));
    ForEach([&](Rank& rank) { bytes[static_cast<size_t>(rank.number)] = FreeMemory(); });
    return bytes;
  }

  std::vector<CUdeviceptr> memory_ = std::vector<CUdeviceptr>(8);
};

TEST_F(Abandon, EndsAtTheDeadlineBesideAKernelThatWaitsForALostRank) {
  AllowLeak("primary context");  // a thread still waits in it
  const std::vector<ncclComm_t> home = group().ConnectFrom(0);
  const std::vector<uint64_t> before = FreeMemories();
  ExpectOk(CreateOver(home));
  ExpectOk(Reserve(2 * kMiB));
  ExpectOk(Run([&](Rank& rank) {
    ncclComm_t const mine = home[static_cast<size_t>(rank.number)];
    const bool lost = rank.number == last();
    if (!lost) Reduce(rank, mine);
    Status status = PoolOf(rank).mode().AbandonCommunicator(mine, CommunicatorLife::kAlive);
    EXPECT_EQ(PoolOf(rank).Statistics().registered_segments, 0u);
    if (!lost) ExpectFailure(PoolOf(rank).Close(), StatusCode::kDeadlineExceeded, "still busy after 300 ms");
    EXPECT_EQ(driver().nccl.ncclCommAbort(mine), ncclSuccess);
    if (!lost) EndReduce(rank);
    return status.ok() ? PoolOf(rank).Close() : status;
  }));
  EXPECT_EQ(FreeMemories(), before);
}

TEST_F(Abandon, GivesBackTheMemoryWhoseRegistrationNeverFinished) {
  const std::vector<ncclComm_t> home = ConnectAll();
  const std::vector<uint64_t> before = FreeMemories();
  ExpectOk(CreateOver(home));
  ExpectOk(Reserve(2 * kMiB));
  ReserveUntilTheDeadline(4 * kMiB);
  EXPECT_EQ(FreeMemories()[0], before[0] - 6 * kMiB) << "nothing is unmapped under NCCL";
  ExpectOk(Run([&](Rank& rank) {
    Status status = GiveUp(rank, home);
    return status.ok() ? PoolOf(rank).Close() : status;
  }));
  EXPECT_EQ(FreeMemories(), before);
  for (int number = 0; number <= last(); ++number) EXPECT_EQ(PoolOf(group()[number]).Statistics().held_bytes, 0u);
}

TEST_F(Abandon, GivesThatMemoryBackInARehomeToo) {
  const std::vector<ncclComm_t> home = ConnectAll();
  std::vector<ncclComm_t> other = group().ConnectFrom(0);
  const std::vector<uint64_t> before = FreeMemories();
  ExpectOk(CreateOver(home));
  ExpectOk(Reserve(2 * kMiB));
  ReserveUntilTheDeadline(4 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    Status status = GiveUp(rank, home);
    return status.ok() ? PoolOf(rank).mode().AsSymmetric()->Rehome(other[static_cast<size_t>(rank.number)]) : status;
  }));
  EXPECT_EQ(FreeMemories()[0], before[0] - 2 * kMiB);
  EXPECT_EQ(RegisteredSegments(0), 1u);
  ExpectOk(Reserve(8 * kMiB));
  ExpectOk(Close());
  EXPECT_EQ(FreeMemories(), before);
  group().Destroy(other);
}

// Sets of registrations over nonblocking communicators: rank 0 gives up its window before the others come.
class GivenUpWindows : public Abandon {
 protected:
  void SetUp() override {
    Abandon::SetUp();
    if (IsSkipped()) return;
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
    CUdeviceptr& memory = memory_[static_cast<size_t>(rank.number)];
    memory = reinterpret_cast<CUdeviceptr>(made);
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
    const CUdeviceptr memory = memory_[static_cast<size_t>(rank.number)];
    if (memory == 0) return;
    EXPECT_EQ(driver().nccl.ncclMemFree(reinterpret_cast<void*>(memory)), ncclSuccess);
  }
  void Abort(const Rank& rank) { EXPECT_EQ(driver().nccl.ncclCommAbort(CommunicatorOf(rank.number)), ncclSuccess); }

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
    Abort(rank);
    return status;
  }));
  EXPECT_EQ(SetOf(0).held_bytes(), 0u);
}

TEST_F(GivenUpWindows, FailInTheAbortWhereTheyAreNotFinished) {
  GiveUpOnRankZero();
  ExpectOk({SetOf(0).EndUnfinished(CommunicatorOf(0), 1)});
  EXPECT_EQ(SetOf(0).held_bytes(), 0u) << "NCCL never had it";
  ForEach([&](Rank& rank) {
    Abort(rank);
    FreeMemoryOf(rank);
  });
}

TEST_F(GivenUpWindows, ThatNcclWouldNotEndAreHeldAndTold) {
  AllowLeak("physical memory");  // NCCL keeps it
  GiveUpOnRankZero();
  AddOnTheOthers();
  {
    const InjectedFault fault({.call = "ncclCommWindowDeregister", .result = ncclSystemError});
    ExpectFailure(SetOf(0).EndUnfinished(CommunicatorOf(0), 20000), StatusCode::kCommunicatorError,
                  "ncclCommWindowDeregister");
  }
  EXPECT_EQ(SetOf(0).held_bytes(), 2 * kMiB);
  ExpectOk(Run([&](Rank& rank) {
    const Status status = SetOf(rank.number).Remove(CommunicatorOf(rank.number));
    Abort(rank);
    FreeMemoryOf(rank);
    return status;
  }));
}

}  // namespace
}  // namespace commpool::internal::testing
