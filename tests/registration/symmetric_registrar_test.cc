// Registrars of a symmetric pool: its ranks tell them of each segment together, or none does.
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include "src/library/pool/group_calls.h"
#include "tests/registration/library_of_a_test.h"
#include "tests/registration/nothing_unseen.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricRegistrars : public SymmetricTest {
 protected:
  SymmetricRegistrars() : SymmetricTest(3) {}

  void Prepare() override {
    for (LibraryOfATest& library : libraries_) {
      library.before_add = [this] {
        CUcontext current = nullptr;
        EXPECT_EQ(driver().cuda.cuCtxGetCurrent(&current), CUDA_SUCCESS);
        EXPECT_NE(current, nullptr);
      };
    }
    ExpectOk(Create());
  }
  LibraryOfATest& Of(const Rank& rank) { return libraries_[rank.index()]; }
  LibraryOfATest& OfLast() { return libraries_[static_cast<size_t>(last())]; }
  Statuses Add() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AddRegistrar(std::optional(Of(rank).Copied())); });
  }
  Statuses Remove() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().RemoveRegistrar("library"); });
  }
  // Each rank's library has these many bytes, and so does the pool.
  void ExpectAllRegistered() {
    for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(Of(group()[rank]).bytes(), ReservedBytes(rank)) << rank;
  }
  void ExpectNothingRegistered() {
    for (int rank = 0; rank <= last(); ++rank) EXPECT_EQ(Of(group()[rank]).bytes(), 0u) << rank;
  }
  void ReserveAndAdd() {
    ExpectOk(Reserve(4 * kMiB));
    AddEverywhere();
  }
  void AddEverywhere() {
    ExpectOk(Add());
    ExpectAllRegistered();
  }
  void Grow(uint64_t bytes) {
    ExpectOk(Reserve(bytes));
    ExpectAllRegistered();
  }

  LibraryOfATest libraries_[3];
};

TEST_F(SymmetricRegistrars, HaveWhatThePoolHasAndWhatItGrows) {
  ReserveAndAdd();
  EXPECT_EQ(OfLast().traits().one_handle, 1);
  EXPECT_EQ(OfLast().traits().device, last());
  Grow(64 * kMiB);
  EXPECT_EQ(RegisteredSegments(0), 4u) << "two with home, two with the library";
  ExpectOk(Trim(0));
  ExpectNothingRegistered();
  Grow(4 * kMiB);
  ExpectOk(Close());
  ExpectNothingRegistered();
  EXPECT_EQ(OfLast().ended(), 1);
}

// Registrars hear of a segment that is made for the peers of its time, and that the book does not have yet.
TEST_F(SymmetricRegistrars, LeaveNoSegmentWithoutAPeerThatIsGrantedMeanwhile) {
  ExpectOk(Add());
  Pool& pool = PoolOf(group()[last()]);
  std::future<Status> granted;
  OfLast().before_add = [&] {
    if (granted.valid()) return;
    granted = std::async(std::launch::async, [&] { return pool.segments().peers.Grant({0}); });
    // Where nothing kept it from that, it would end now.
    for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
  };
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(granted.get());
  const CUmemLocation location{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  unsigned long long flags = 0;
  EXPECT_EQ(driver().cuda.cuMemGetAccess(&flags, &location, pool.segments().book.Pointers().front()->address()),
            CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ExpectOk(Close());
}

TEST_F(SymmetricRegistrars, ThatFailHalfWayOnOneRankAreAddedOnNone) {
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(Reserve(64 * kMiB));
  OfLast().add_answers = COMMPOOL_OUT_OF_MEMORY;
  OfLast().adds_before_failure = 1;
  const Statuses failed = Add();
  ExpectFailureNaming(failed, StatusCode::kOutOfMemory, {"failed on " + LastRank(), "the card is full"});
  ExpectNothingRegistered();
  EXPECT_EQ(OfLast().ended() + libraries_[0].ended(), 0);
  OfLast().add_answers = COMMPOOL_OK;
  AddEverywhere();
}

TEST_F(SymmetricRegistrars, ThatThrowOnOneRankAreAddedOnNone) {
  ExpectOk(Reserve(4 * kMiB));
  OfLast().before_add = [] { throw std::runtime_error("boom"); };
  ExpectFailure(Add(), StatusCode::kInvalidArgument, "failed on " + LastRank());
  ExpectNothingRegistered();
}

TEST_F(SymmetricRegistrars, ThatFailInAGrowthUndoItOnAllRanks) {
  ReserveAndAdd();
  const uint64_t before = ReservedBytes(0);
  OfLast().add_answers = COMMPOOL_DRIVER_ERROR;
  ExpectFailure(Reserve(64 * kMiB), StatusCode::kFailedPrecondition, "registrar library: registering");
  EXPECT_EQ(ReservedBytes(0), before);
  ExpectAllRegistered();
  OfLast().add_answers = COMMPOOL_OK;
  Grow(64 * kMiB);
}

// The first pool's library refuses on one rank, when NCCL's calls for both pools have been made.
TEST_F(SymmetricRegistrars, ThatFailForOneOfSeveralPoolsUndoTheGrowthOfAll) {
  std::vector<PoolHandle> others(static_cast<size_t>(group().size()));
  ForEach([&](Rank& rank) { others[rank.index()] = runtime().CreatePool(Configured(rank)).value(); });
  ExpectOk(Add());
  OfLast().add_answers = COMMPOOL_NOT_SUPPORTED;
  const auto reserve_both = [&] {
    return Run([&](Rank& rank) {
      const PoolHandle pools[] = {HandleOf(rank), others[rank.index()]};
      return ReservePools(runtime(), pools, 4 * kMiB);
    });
  };
  ExpectFailure(reserve_both(), StatusCode::kNotSupported, "failed on " + LastRank());
  ExpectNothingRegistered();
  EXPECT_EQ(ReservedBytes(0), 0u);
  OfLast().add_answers = COMMPOOL_OK;
  ExpectOk(reserve_both());
  ExpectAllRegistered();
  ExpectOk(Run([&](Rank& rank) {
    ExpectOk({runtime().pools().Find(others[rank.index()]).value()->Close()});
    return runtime().DestroyPool(others[rank.index()]);
  }));
}

TEST_F(SymmetricRegistrars, MayBeMissingOnSomeRanks) {
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(Run([&](Rank& rank) {
    return PoolOf(rank).mode().AddRegistrar(rank.number == 0 ? std::optional(Of(rank).Copied()) : std::nullopt);
  }));
  EXPECT_EQ(libraries_[0].bytes(), ReservedBytes(0));
  EXPECT_EQ(OfLast().bytes(), 0u);
  ExpectOk(Remove());
  ExpectNothingRegistered();
  EXPECT_EQ(libraries_[0].ended(), 1);
}

TEST_F(SymmetricRegistrars, ThatOneRankCannotReadAreToldToAll) {
  const Statuses failed = Run([&](Rank& rank) {
    if (rank.number != 0) return PoolOf(rank).mode().AddRegistrar(std::optional(Of(rank).Copied()));
    return PoolOf(rank).mode().AddRegistrar(Status(StatusCode::kInvalidArgument, "it needs both functions"));
  });
  ExpectFailure(failed, StatusCode::kInvalidArgument, "rank 0 cannot add_registrar: it needs both functions");
  ExpectNothingRegistered();
}

// The registrar of the last rank returns once another rank has given it up. What it registered is undone.
TEST_F(SymmetricRegistrars, ThatBlockAreNamedByTheOtherRanks) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  ExpectOk(Close());
  DestroyPools();
  CreateAndReserve(4 * kMiB, Deadline(1000));
  std::promise<void> given_up;
  OfLast().before_add = [blocked = given_up.get_future().share()] { blocked.wait(); };
  const Statuses failed = Run([&](Rank& rank) {
    Status status = PoolOf(rank).mode().AddRegistrar(std::optional(Of(rank).Copied()));
    if (rank.number == 0) given_up.set_value();
    return status;
  });
  for (const Status& status : failed) EXPECT_FALSE(status.ok());
  ExpectFailure(failed[0], StatusCode::kDeadlineExceeded, LastRank());
  ExpectNothingRegistered();
  OfLast().before_add = [] {};
  MoveHome();
  AddEverywhere();
}

TEST_F(SymmetricRegistrars, SleepAndWakeWithThePool) {
  ReserveAndAdd();
  ExpectOk(Sleep());
  ExpectNothingRegistered();
  ExpectOk(Wake());
  ExpectAllRegistered();
  EXPECT_EQ(OfLast().added(), 2);
}

TEST_F(SymmetricRegistrars, ThatFailInAWakeLeaveThePoolAsleep) {
  ReserveAndAdd();
  ExpectOk(Sleep());
  OfLast().add_answers = COMMPOOL_OUT_OF_MEMORY;
  ExpectFailure(Wake(), StatusCode::kOutOfMemory, "the card is full");
  ExpectNothingRegistered();
  OfLast().add_answers = COMMPOOL_OK;
  ExpectOk(Wake());
  ExpectAllRegistered();
}

// Each rank gives up its home, as after a loss. The library keeps what it has, under the segments' new numbers.
TEST_F(SymmetricRegistrars, KeepTheirSegmentsInAnotherHome) {
  COMMPOOL_REQUIRE_EMULATOR("addresses that stay out of use are a leak");
  AllowLeak("reserved addresses");
  ExpectOk(Reserve(4 * kMiB));
  ExpectOk(Reserve(64 * kMiB));
  const std::vector<CUdeviceptr> blocks = Allocate(32 * kMiB);
  ExpectOk(Trim(0));  // of the first segment
  Free(blocks);
  ExpectOk(Reclaim());
  ExpectOk(Add());
  MoveHome();
  ExpectAllRegistered();
  EXPECT_EQ(OfLast().added(), 1);
  Grow(128 * kMiB);
  ExpectOk(Close());
  ExpectNothingRegistered();
}

}  // namespace
}  // namespace commpool::internal::testing
