// A reserve fails in the registration on one rank, and another rank cannot undo its own. Then no rank gives its memory
// back, because peers may still reach it through the window that stayed.
#include <algorithm>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class UndoneRegistration : public SymmetricTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("faults are injected");
    SymmetricTest::SetUp();
    if (IsSkipped()) return;
    alone_ = group().ConnectFrom(last());  // the last rank's own: it may fail there and hold nobody
    ExpectOk(Create());
    ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().RegisterWith(AloneOf(rank)); }));
  }
  void TearDown() override {
    if (!alone_.empty()) EndAlone();
    SymmetricTest::TearDown();
  }

  void EndAlone() {
    ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(AloneOf(rank)); }));
    group().Destroy(alone_);
    alone_.clear();
  }

  ncclComm_t AloneOf(const Rank& rank) const { return alone_[static_cast<size_t>(rank.number)]; }
  // The device memory that each rank's driver has left.
  std::vector<size_t> MemoryLeft() {
    std::vector<size_t> left(static_cast<size_t>(group().size()));
    ForEach([&](Rank& rank) {
      size_t total = 0;
      EXPECT_EQ(driver().cuda.cuMemGetInfo(&left[static_cast<size_t>(rank.number)], &total), CUDA_SUCCESS);
    });
    return left;
  }
  // Home gets its window on every rank; then the last rank fails on the communicator of its own.
  Statuses ReserveWhereTheLastRankFails() {
    const InjectedFault one(
        {.call = "ncclCommWindowRegister", .result = ncclInternalError, .skip = group().size(), .count = 1});
    return Reserve(kBytes);
  }

  static constexpr uint64_t kBytes = 2 * kMiB;

 private:
  std::vector<ncclComm_t> alone_;
};

TEST_F(UndoneRegistration, GivesTheMemoryBackWhereEveryRankHasUndoneIt) {
  const std::vector<size_t> before = MemoryLeft();
  ExpectFailure(ReserveWhereTheLastRankFails(), StatusCode::kCommunicatorError,
                "registering a segment of 2 MiB failed on rank " + std::to_string(last()));
  EXPECT_EQ(MemoryLeft(), before);
  EXPECT_EQ(RegisteredSegments(0), 0u);
  ExpectOk(Reserve(kBytes));
}

TEST_F(UndoneRegistration, KeepsTheMemoryOfAllRanksWhereOneHasNot) {
  for (const char* kept : {"reserved addresses", "mapping", "physical memory", "primary context"}) {
    AllowLeak(kept);
  }
  const std::vector<size_t> before = MemoryLeft();
  {
    // The last rank undoes its registration before the others learn of its failure. So the second undo is one of
    // theirs.
    const InjectedFault second({.call = "ncclCommWindowDeregister", .result = ncclInternalError, .skip = 1});
    ExpectFailure(ReserveWhereTheLastRankFails(), StatusCode::kCommunicatorError,
                  "registering a segment of 2 MiB failed on rank " + std::to_string(last()));
  }
  const std::vector<size_t> after = MemoryLeft();
  for (size_t rank = 0; rank < before.size(); ++rank) EXPECT_EQ(before[rank] - after[rank], kBytes) << "rank " << rank;
  EXPECT_TRUE(EmulatorReports().empty()) << "nothing that is registered was unmapped";
  EXPECT_EQ(ReservedBytes(0), 0u) << "no block is ever served from it";
  ExpectOk(Reserve(kBytes));  // the pool still works
  EndAlone();
  ExpectOk(Close());
  const std::vector<size_t> closed = MemoryLeft();
  EXPECT_EQ(std::count(closed.begin(), closed.end(), before[0]), static_cast<ptrdiff_t>(before.size()) - 1)
      << "all but the rank whose NCCL holds the memory have given it back";
  EXPECT_TRUE(EmulatorReports().empty()) << "nothing that is registered was unmapped";
  DestroyPools();
  End();  // without a report: close() ended the registration
}

}  // namespace
}  // namespace commpool::internal::testing
