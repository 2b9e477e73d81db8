// Ranks made different calls: verify() names the first difference, the pool serves no more, and close() ends it.
#include <chrono>
#include <thread>

#include "src/library/pool/group_calls.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricDivergence : public SymmetricTest {
 protected:
  // The last rank allocates the same sizes in another order.
  void CreateAndDiverge(const Adjust& adjust = nullptr) {
    CreateAndReserve(4 * kMiB, adjust);
    blocks_.assign(static_cast<size_t>(group().size()), {});
    ForEach([&](Rank& rank) {
      for (const uint64_t bytes : rank.number == last() ? std::vector{kMiB, kKiB} : std::vector{kKiB, kMiB}) {
        blocks_[rank.index()].push_back(AllocateOn(rank, bytes).value());
      }
    });
  }
  void FreeBlocks() {
    ForEach([&](Rank& rank) {
      for (const CUdeviceptr block : blocks_[rank.index()]) ExpectOk({PoolOf(rank).Free(block)});
    });
  }

  static void ExpectDivergence(const Statuses& statuses, const std::string& what = "the sequences of calls differ") {
    ExpectFailure(statuses, StatusCode::kDisagreement, what);
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
  EXPECT_EQ(StatisticsOf(0).pending_bytes, 2 * kMiB);
}

TEST_F(SymmetricDivergence, VerifyNamesTheFirstDifferingCallAndTheRanks) {
  CreateAndDiverge();
  const std::string difference =
      "rank 0 made allocate 1,024 bytes (call 2), " + LastRank() + " made allocate 1,048,576 bytes (call 2)";
  ExpectDivergence(Verify(), difference);
  ExpectDivergence(Verify(), difference);
  FreeBlocks();
}

TEST_F(SymmetricDivergence, EndsAllocations) {
  CreateAndDiverge();
  ExpectDivergence(Reclaim(), "rank 0 made allocate 1,024 bytes (call 2)");
  for (const Statuses& statuses : {Run([&](Rank& rank) { return AllocateOn(rank, kKiB).status(); }), Reserve(kMiB),
                                   Reclaim(), Trim(0), Deregister(Homes())}) {
    ExpectDivergence(statuses, "rank 0 made allocate 1,024 bytes (call 2)");
  }
  FreeBlocks();
}

TEST_F(SymmetricDivergence, CloseEndsThePoolOnceEveryRankKnows) {
  CreateAndDiverge();
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, "rank 0 cannot close: ");
  FreeBlocks();
  ExpectDivergence(Close(), "the sequences of calls differ");
  EXPECT_EQ(ReservedBytes(0), 4 * kMiB);
  ExpectOk(Close());
  ExpectOnAll(0, 0);
}

TEST_F(SymmetricDivergence, LiveBlocksKeepADivergedPoolFromClosing) {
  CreateAndDiverge();
  ExpectDivergence(Verify());
  ExpectFailure(Close(), StatusCode::kFailedPrecondition, "still has 2 live blocks");
  FreeBlocks();
}

TEST_F(SymmetricDivergence, OfOrderedFreesEndsAsWell) {
  CreateAndDiverge(Ordered);
  ExpectDivergence(Verify());
  FreeBlocks();
}

TEST_F(SymmetricDivergence, VerifyOfAClosedPoolIsRefused) {
  ExpectOk(Create());
  ExpectOk(Close());
  ExpectFailure(Verify(), StatusCode::kFailedPrecondition, "is closed");
}

TEST_F(SymmetricDivergence, VerifyOfAFixedPoolDoesNothing) {
  const PoolHandle fixed = MakeFixed()->handle();
  EXPECT_TRUE(VerifyPools(runtime(), {&fixed, 1}).ok());
  EXPECT_TRUE(runtime().DestroyPool(fixed).ok());
}

// Symmetric pools publish in the background: ranks that made different calls learn it without a collective call.

class Publication : public SymmetricTest {
 protected:
  // Makes the same calls until the rank hears of a difference.
  Status CallUntilOtherwise(const Rank& rank) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    Status status;
    do {
      status = AllocateOn(rank, 512).status();
      // The log has the last calls alone, and on a busy machine the publisher is late.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    } while (status.code() == StatusCode::kExhausted && std::chrono::steady_clock::now() < deadline);
    return status;
  }
  // An empty pool refuses, and the call is still part of the sequence.
  void ExpectExhausted(const Rank& rank, uint64_t bytes) {
    EXPECT_EQ(AllocateOn(rank, bytes).status().code(), StatusCode::kExhausted);
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
                "rank 0 made refused allocation of 1,000 bytes (call 1), " + LastRank() +
                    " made refused allocation of 2,000 bytes (call 1)");
  ExpectFailure(Reserve(2 * kMiB), StatusCode::kDisagreement, "refused allocation of 1,000 bytes (call 1)");
}

TEST_F(Publication, NamesSwappedFreesThatAreOrdered) {
  CreateAndReserve(2 * kMiB, Ordered);
  std::vector<std::vector<CUdeviceptr>> blocks = {Allocate(kMiB), Allocate(kMiB)};
  const Statuses statuses = Run([&](Rank& rank) {
    const size_t first = rank.number == 0 ? 1 : 0;
    ExpectOk({PoolOf(rank).Free(blocks[first][rank.index()]), PoolOf(rank).Free(blocks[1 - first][rank.index()])});
    Status status;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (status.ok() && std::chrono::steady_clock::now() < deadline) status = AllocateAndFreeOn(rank, 512);
    return status;
  });
  ExpectFailure(statuses, StatusCode::kDisagreement, "rank 0 made free of block 1 (call 4), rank ");
}

TEST_F(Publication, FindsNothingInTheSameCallsOfRanksOfDifferentSpeed) {
  ExpectOk(Create());
  for (int slow = 0; slow <= last(); ++slow) {
    ForEach([&](Rank& rank) {
      for (uint64_t call = 0; rank.number != slow && call < 1000; ++call) ExpectExhausted(rank, 512 + call);
    });
    for (uint64_t call = 0; call < 1000; ++call) ExpectExhausted(group()[slow], 512 + call);
  }
  ExpectOk(Verify());
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
  ExpectOk(Abandon(Homes(), CommunicatorLife::kEnded));
  ForEach([&](Rank& rank) {
    // They differ, and no rank compares.
    for (uint64_t call = 0; call < 1000; ++call) ExpectExhausted(rank, 512 + rank.index());
  });
  DestroyPools();
}

// What a full scope of a symmetric pool hands on is the same on every rank (rule 4), so the sequences agree.

class SymmetricScopes : public SymmetricTest {
 protected:
  // Default pools and fixed ones give back what the test made them hold.
  void TearDown() override {
    if (!IsSkipped()) {
      for (const std::shared_ptr<Pool>& pool : runtime().pools().All()) {
        if (!pool->symmetric()) ExpectOk({pool->Trim(0).status()});
      }
    }
    SymmetricTest::TearDown();
  }

  // A scope of this thread for the length of `body`.
  void In(const std::shared_ptr<Pool>& pool, SizeRange sizes, Exhaustion exhaustion,
          const std::function<void()>& body) {
    const ScopeRequest request{
        .pool = pool, .filter = ScopeFilter::kThread, .stream = 0, .sizes = sizes, .exhaustion = exhaustion};
    const ScopeHandle scope = runtime().scopes().Begin(request).value();
    body();
    ExpectOk({runtime().scopes().End(scope)});
  }
  std::shared_ptr<Pool> SymmetricOf(const Rank& rank) { return runtime().pools().Find(HandleOf(rank)).value(); }
  // Allocates and frees; appends the first letter of the pool that served, '!' where none did.
  void Try(const Rank& rank, uint64_t bytes, std::string* order, std::vector<CUdeviceptr>* kept) {
    const Result<CUdeviceptr> address = runtime().Allocate(rank.number, bytes, rank.stream);
    *order += address.ok() ? runtime().addresses().OwnerOf(*address).value()->name()[0] : '!';
    if (address.ok()) kept->push_back(*address);
  }
  void FreeAll(const std::vector<CUdeviceptr>& blocks) {
    for (const CUdeviceptr block : blocks) ExpectOk({runtime().Free(block)});
  }
};

TEST_F(SymmetricScopes, AFullPoolHandsOnTheSameRequestsOnEveryRank) {
  CreateAndReserve(4 * kMiB);
  std::vector<std::string> orders(static_cast<size_t>(last() + 1));
  ForEach([&](Rank& rank) {
    std::vector<CUdeviceptr> kept;
    In(SymmetricOf(rank), {kMiB, UINT64_MAX}, Exhaustion::kNextScope, [&] {
      for (const uint64_t bytes : {kMiB, kKiB, 2 * kMiB, 2 * kMiB, kMiB, kMiB}) {
        Try(rank, bytes, &orders[rank.index()], &kept);
      }
    });
    FreeAll(kept);
  });
  for (const std::string& order : orders) EXPECT_EQ(order, "gdgdgd");
  ExpectOk(Reclaim());  // the sequences agree
}

// Rank 0's fixed pool is smaller than the others': what it hands on must not move the symmetric pool's blocks.
TEST_F(SymmetricScopes, RequestsThatAFixedPoolHandsOnSkipSymmetricPools) {
  CreateAndReserve(8 * kMiB);
  std::vector<std::string> orders(static_cast<size_t>(last() + 1));
  ForEach([&](Rank& rank) {
    std::vector<CUdeviceptr> kept;
    const std::shared_ptr<Pool> fixed = MakeFixed("fixed", rank.number, rank.number == 0 ? kMiB : UINT64_MAX);
    In(SymmetricOf(rank), {}, Exhaustion::kError, [&] {
      In(fixed, {}, Exhaustion::kNextScope, [&] {
        Try(rank, 4 * kMiB, &orders[rank.index()], &kept);
        FreeAll(kept);
      });
    });
  });
  EXPECT_EQ(orders[0], "d");
  for (size_t rank = 1; rank < orders.size(); ++rank) EXPECT_EQ(orders[rank], "f");
  ExpectOk(Reclaim());
}

}  // namespace
}  // namespace commpool::internal::testing
