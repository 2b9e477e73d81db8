// Ranks made different calls: verify() names the first difference, the pool serves no more, and close() ends it.
#include "src/library/pool/group_calls.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricDivergence : public SymmetricTest {
 protected:
  Statuses Verify() {
    return Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); });
  }
  // The last rank allocates the same sizes in another order.
  void Diverge() {
    blocks_.assign(static_cast<size_t>(group().size()), {});
    ExpectOk(Run([&](Rank& rank) {
      for (const uint64_t bytes : rank.number == last() ? std::vector{kMiB, kKiB} : std::vector{kKiB, kMiB}) {
        Result<CUdeviceptr> block = PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number));
        if (!block.ok()) return block.status();
        blocks_[static_cast<size_t>(rank.number)].push_back(*block);
      }
      return Status();
    }));
  }
  void FreeBlocks() {
    ExpectOk(Run([&](Rank& rank) {
      for (const CUdeviceptr block : blocks_[static_cast<size_t>(rank.number)]) {
        Status status = PoolOf(rank).Free(block);
        if (!status.ok()) return status;
      }
      return Status();
    }));
  }

  std::vector<std::vector<CUdeviceptr>> blocks_;
};

TEST_F(SymmetricDivergence, VerifyIsOkWhereTheCallsAreTheSame) {
  ExpectOk(Create());
  ExpectOk(Verify());
  ExpectOk(Reserve(2 * kMiB));
  Free(Allocate(kMiB));
  for (int time = 0; time < 2; ++time) ExpectOk(Verify());
}

TEST_F(SymmetricDivergence, VerifyLeavesFreesPending) {
  CreateAndReserve(2 * kMiB);
  Free(Allocate(2 * kMiB));
  ExpectOk(Verify());
  EXPECT_EQ(PoolOf(group()[0]).Statistics().pending_bytes, 2 * kMiB);
}

TEST_F(SymmetricDivergence, VerifyNamesTheFirstDifferingCallAndTheRanks) {
  CreateAndReserve(4 * kMiB);
  Diverge();
  const std::string difference = "rank 0 made allocate 1,024 bytes (call 2), rank " + std::to_string(last()) +
                                 " made allocate 1,048,576 bytes (call 2)";
  ExpectFailure(Verify(), StatusCode::kDisagreement, difference);
  ExpectFailure(Verify(), StatusCode::kDisagreement, difference);
  FreeBlocks();
}

TEST_F(SymmetricDivergence, EndsAllocations) {
  CreateAndReserve(4 * kMiB);
  Diverge();
  ExpectFailure(Reclaim(), StatusCode::kDisagreement, "rank 0 made allocate 1,024 bytes (call 2)");
  for (const Statuses& statuses :
       {Run([&](Rank& rank) { return PoolOf(rank).Allocate(kKiB, KeyOfStream(rank.stream, rank.number)).status(); }),
        Reserve(kMiB), Reclaim(), Trim(0),
        Run([&](Rank& rank) { return PoolOf(rank).mode().Deregister(rank.communicator); })}) {
    ExpectFailure(statuses, StatusCode::kDisagreement, "rank 0 made allocate 1,024 bytes (call 2)");
  }
  FreeBlocks();
}

TEST_F(SymmetricDivergence, CloseEndsThePoolOnceEveryRankKnows) {
  CreateAndReserve(4 * kMiB);
  Diverge();
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, "rank 0 cannot close: ");
  FreeBlocks();
  ExpectFailure(Close(), StatusCode::kDisagreement, "the sequences of calls differ");
  EXPECT_EQ(ReservedBytes(0), 4 * kMiB);
  ExpectOk(Close());
  for (int rank = 0; rank <= last(); ++rank) {
    EXPECT_EQ(ReservedBytes(rank), 0u);
    EXPECT_EQ(RegisteredSegments(rank), 0u);
  }
}

TEST_F(SymmetricDivergence, LiveBlocksKeepADivergedPoolFromClosing) {
  CreateAndReserve(4 * kMiB);
  Diverge();
  ExpectFailure(Verify(), StatusCode::kDisagreement, "the sequences of calls differ");
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, "still has 2 live blocks");
  FreeBlocks();
}

TEST_F(SymmetricDivergence, OfOrderedFreesEndsAsWell) {
  CreateAndReserve(4 * kMiB, Ordered);
  Diverge();
  ExpectFailure(Verify(), StatusCode::kDisagreement, "the sequences of calls differ");
  FreeBlocks();
}

TEST_F(SymmetricDivergence, VerifyOfAClosedPoolIsRefused) {
  ExpectOk(Create());
  ExpectOk(Close());
  ExpectFailure(Verify(), StatusCode::kFailedPrecondition, "is closed");
}

TEST_F(SymmetricDivergence, VerifyOfAFixedPoolDoesNothing) {
  PoolConfiguration configuration;
  configuration.name = "fixed";
  const PoolHandle fixed = runtime().CreatePool(configuration).value();
  EXPECT_TRUE(VerifyPools(runtime(), {&fixed, 1}).ok());
  EXPECT_TRUE(runtime().DestroyPool(fixed).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
