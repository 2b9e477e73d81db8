// Symmetric pools publish in the background: ranks that made different calls learn it without a collective call.
#include <chrono>
#include <thread>

#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

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
  ExpectOk(Run([&](Rank& rank) {
    for (int call = 0; rank.number != last() && call < 1000; ++call) ExpectExhausted(rank, 512);
    return Status();
  }));
  DestroyPools();
}

TEST_F(Publication, EndsWithAnAbandonedHome) {
  ExpectOk(Create());
  ExpectOk(Run([&](Rank& rank) {
    return PoolOf(rank).mode().AbandonCommunicator(rank.communicator, CommunicatorLife::kEnded);
  }));
  ExpectOk(Run([&](Rank& rank) {
    for (uint64_t call = 0; call < 1000; ++call) {
      ExpectExhausted(rank, 512 + static_cast<uint64_t>(rank.number));  // differs, and no rank compares
    }
    return Status();
  }));
  DestroyPools();
}

}  // namespace
}  // namespace commpool::internal::testing
