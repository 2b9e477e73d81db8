// Ranks made different calls: verify() names the first difference, the pool serves no more, and close() ends it.
#include <chrono>
#include <thread>

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

// Symmetric pools publish in the background: ranks that made different calls learn it without a collective call.

class Publication : public SymmetricTest {
 protected:
  // An empty pool refuses, and the call is still part of the sequence.
  Status Call(const Rank& rank, uint64_t bytes) {
    return PoolOf(rank).Allocate(bytes, KeyOfStream(rank.stream, rank.number)).status();
  }
  // Makes the same calls until the rank hears of a difference.
  Status CallUntilOtherwise(const Rank& rank) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    Status status;
    do {
      status = Call(rank, 512);
      // The log has the last calls alone, and on a busy machine the publisher is late.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } while (status.code() == StatusCode::kExhausted && std::chrono::steady_clock::now() < deadline);
    return status;
  }
  void ExpectExhausted(const Rank& rank, uint64_t bytes) {
    EXPECT_EQ(Call(rank, bytes).code(), StatusCode::kExhausted);
  }
};

TEST_F(Publication, NamesSwappedCallsOnEveryRankWithoutACollectiveCall) {
  ExpectOk(Create());
  const Statuses statuses = Run([&](Rank& rank) {
    ExpectExhausted(rank, rank.number == last() ? 2000 : 1000);
    ExpectExhausted(rank, rank.number == last() ? 1000 : 2000);
    return CallUntilOtherwise(rank);
  });
  ExpectFailure(statuses, StatusCode::kDisagreement,
                "rank 0 made refused allocation of 1,000 bytes (call 1), rank " + std::to_string(last()) +
                    " made refused allocation of 2,000 bytes (call 1)");
  ExpectFailure(Reserve(2 * kMiB), StatusCode::kDisagreement, "refused allocation of 1,000 bytes (call 1)");
}

TEST_F(Publication, NamesSwappedFreesThatAreOrdered) {
  CreateAndReserve(2 * kMiB, Ordered);
  std::vector<std::vector<CUdeviceptr>> blocks = {Allocate(kMiB), Allocate(kMiB)};
  const Statuses statuses = Run([&](Rank& rank) {
    const auto number = static_cast<size_t>(rank.number);
    for (const size_t block : {rank.number == 0 ? size_t{1} : 0, rank.number == 0 ? size_t{0} : 1}) {
      const Status status = PoolOf(rank).Free(blocks[block][number]);
      if (!status.ok()) return status;
    }
    Status status;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (status.ok() && std::chrono::steady_clock::now() < deadline) {
      Result<CUdeviceptr> block = PoolOf(rank).Allocate(512, KeyOfStream(rank.stream, rank.number));
      status = block.ok() ? PoolOf(rank).Free(*block) : block.status();
    }
    return status;
  });
  ExpectFailure(statuses, StatusCode::kDisagreement, "rank 0 made free of block 1 (call 4), rank ");
}

TEST_F(Publication, FindsNothingInTheSameCallsOfRanksOfDifferentSpeed) {
  ExpectOk(Create());
  for (int slow = 0; slow <= last(); ++slow) {
    ExpectOk(Run([&](Rank& rank) {
      if (rank.number == slow) return Status();
      for (uint64_t call = 0; call < 1000; ++call) ExpectExhausted(rank, 512 + call);
      return Status();
    }));
    for (uint64_t call = 0; call < 1000; ++call) ExpectExhausted(group()[slow], 512 + call);
  }
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().AsSymmetric()->Verify(); }));
}

TEST_F(Publication, OfARankThatIsGoneStopsAndFailsNobody) {
  ExpectOk(Create());
  ExpectExhausted(group()[last()], 4096);  // the next call would differ
  ReleasePoolOf(last());
  ForEach([&](Rank& rank) {
    for (int call = 0; rank.number != last() && call < 1000; ++call) ExpectExhausted(rank, 512);
  });
  DestroyPools();
}

TEST_F(Publication, EndsWithAnAbandonedHome) {
  ExpectOk(Create());
  ExpectOk(Run([&](Rank& rank) {
    return PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kEnded);
  }));
  ForEach([&](Rank& rank) {
    for (uint64_t call = 0; call < 1000; ++call) {
      ExpectExhausted(rank, 512 + static_cast<uint64_t>(rank.number));  // differs, and no rank compares
    }
  });
  DestroyPools();
}

}  // namespace
}  // namespace commpool::internal::testing
