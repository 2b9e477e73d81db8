// The decisions of a stream-ordered pool, without a machine.
#include "src/emulator/cuda/async_pool.h"

#include <gtest/gtest.h>

#include "src/library/base/bytes.h"

namespace commpool::internal::emulator {
namespace {

constexpr uint64_t kStep = AsyncPool::kStep;

class AsyncPoolDecides : public ::testing::Test {
 protected:
  AsyncPoolDecides() : pool_(64 * kStep) {}

  // The offset of an allocation on stream 1, when every free stands to it as `order_` says.
  std::optional<uint64_t> Allocate(uint64_t bytes) {
    const std::optional<AsyncPool::Plan> plan = Find(bytes);
    if (!plan) return std::nullopt;
    pool_.Take(*plan);
    return plan->place.offset;
  }
  std::optional<AsyncPool::Plan> Find(uint64_t bytes) {
    return pool_.Find(bytes, [&](const StreamPoint& point) { return point.stream == 1 ? Order::kOwnStream : order_; });
  }
  void Free(uint64_t offset, uint64_t stream) {
    ASSERT_TRUE(pool_.Free(offset, StreamPoint{stream, ++sequence_, nullptr}));
  }
  // The host waits for everything that the streams up to this one have freed.
  void WaitForStreams(uint64_t last) {
    pool_.Settle([last](const StreamPoint& point) { return point.stream <= last; });
  }

  AsyncPool pool_;
  Order order_ = Order::kNone;
  uint64_t sequence_ = 0;
};

TEST_F(AsyncPoolDecides, GrowsInWholeSteps) {
  EXPECT_EQ(Allocate(1), 0u);
  EXPECT_EQ(pool_.reserved.current, kStep);
  EXPECT_EQ(pool_.used.current, 1u);
}

TEST_F(AsyncPoolDecides, AnAllocationMayBeginInOneStepAndEndInTheNext) {
  EXPECT_EQ(Allocate(1), 0u);
  EXPECT_EQ(Allocate(kStep), AsyncPool::kAlignment);
  EXPECT_EQ(pool_.reserved.current, 2 * kStep);
}

TEST_F(AsyncPoolDecides, AStreamsOwnFreeServesItNext) {
  const uint64_t offset = Allocate(kMiB).value();
  Free(offset, 1);
  const std::optional<AsyncPool::Plan> plan = Find(kMiB);
  EXPECT_EQ(plan->place.offset, offset);
  EXPECT_TRUE(plan->after.empty());
}

TEST_F(AsyncPoolDecides, AnotherStreamsFreeServesAsThePoliciesAllow) {
  Free(Allocate(kStep).value(), 2);
  for (const auto& [order, policy] : {std::pair{Order::kBehindEvents, &pool_.policies.follow_events},
                                      std::pair{Order::kDone, &pool_.policies.opportunistic}}) {
    order_ = order;
    EXPECT_TRUE(Find(kStep)->growth.empty());
    EXPECT_EQ(Find(kStep)->after.size(), 1u) << "behind the free";
    *policy = false;
    EXPECT_EQ(Find(kStep)->growth, (std::vector<AsyncExtent>{{kStep, kStep}}));
  }
}

TEST_F(AsyncPoolDecides, GrowsRatherThanMakeAStreamWait) {
  const uint64_t offset = Allocate(kStep).value();
  Free(offset, 2);
  EXPECT_EQ(Find(kStep)->growth.size(), 1u);
  const auto relate = [](const StreamPoint&) { return Order::kNone; };
  EXPECT_EQ(pool_.FindDepending(kStep, relate)->place.offset, offset);
  EXPECT_EQ(pool_.FindDepending(kStep, relate)->after.size(), 1u);
  pool_.policies.opportunistic = false;
  const auto done = [](const StreamPoint&) { return Order::kDone; };
  EXPECT_TRUE(pool_.FindDepending(kStep, done).has_value()) << "a dependency does for what is done too";
  pool_.policies.internal_dependencies = false;
  EXPECT_FALSE(pool_.FindDepending(kStep, relate).has_value());
}

TEST_F(AsyncPoolDecides, AnyStreamTakesMemoryAfterAHostWaitUnderAnyPolicy) {
  const uint64_t offset = Allocate(kStep).value();
  Free(offset, 2);
  pool_.policies = {false, false, false};
  WaitForStreams(1);
  EXPECT_NE(Find(kStep)->place.offset, offset);
  WaitForStreams(2);
  EXPECT_EQ(Find(kStep)->place.offset, offset);
  EXPECT_TRUE(Find(kStep)->after.empty());
}

TEST_F(AsyncPoolDecides, OwnMemoryComesBeforeThatOfOthers) {
  const uint64_t first = Allocate(kMiB).value();
  const uint64_t second = Allocate(kMiB).value();
  Allocate(kStep - 2 * kMiB);
  Free(first, 2);
  Free(second, 1);
  EXPECT_EQ(Find(kMiB)->place.offset, second);
}

TEST_F(AsyncPoolDecides, NeighboursFreedOnOneStreamServeAsOne) {
  const uint64_t first = Allocate(kMiB).value();
  const uint64_t second = Allocate(kMiB).value();
  Allocate(kStep - 2 * kMiB);
  Free(second, 1);
  Free(first, 1);
  EXPECT_EQ(Find(2 * kMiB)->place.offset, first);
}

TEST_F(AsyncPoolDecides, NeighboursFreedOnTwoStreamsServeBehindBoth) {
  const uint64_t first = Allocate(kMiB).value();
  const uint64_t second = Allocate(kMiB).value();
  Allocate(kStep - 2 * kMiB);
  Free(first, 2);
  Free(second, 3);
  order_ = Order::kDone;
  EXPECT_EQ(Find(2 * kMiB)->after.size(), 2u);
}

TEST_F(AsyncPoolDecides, ReleasesUntilNoMoreThanIsKept) {
  Free(Allocate(4 * kStep).value(), 1);
  WaitForStreams(1);
  EXPECT_EQ(pool_.Release(kStep + kMiB).size(), 3u);
  EXPECT_EQ(pool_.reserved.current, kStep);
  EXPECT_EQ(pool_.reserved.high, 4 * kStep);
}

TEST_F(AsyncPoolDecides, KeepsStepsInUseAndThoseWhoseFreeNobodyWaitedFor) {
  const uint64_t first = Allocate(kStep).value();
  Allocate(1);
  Free(first, 1);
  EXPECT_TRUE(pool_.Release(0).empty());
  WaitForStreams(1);
  EXPECT_EQ(pool_.Release(0), (std::vector<AsyncExtent>{{first, kStep}}));
}

TEST_F(AsyncPoolDecides, GrowsAgainWhereItReleased) {
  const uint64_t first = Allocate(kStep).value();
  Allocate(1);
  Free(first, 2);
  WaitForStreams(2);
  pool_.Release(0);
  const std::optional<AsyncPool::Plan> plan = Find(kStep);
  EXPECT_TRUE(plan->after.empty()) << "new memory is nobody's";
  pool_.Take(*plan);
  EXPECT_EQ(pool_.reserved.current, 2 * kStep);
}

TEST_F(AsyncPoolDecides, ReservesNoMoreThanItsLimit) {
  AsyncPool limited(64 * kStep, 2 * kStep);
  const auto relate = [](const StreamPoint&) { return Order::kOwnStream; };
  EXPECT_TRUE(limited.Find(2 * kStep, relate).has_value());
  EXPECT_FALSE(limited.Find(2 * kStep + 1, relate).has_value());
}

TEST_F(AsyncPoolDecides, RefusesRequestsBeyondItsAddresses) {
  EXPECT_FALSE(Find(64 * kStep + 1).has_value());
  EXPECT_FALSE(Find(UINT64_MAX).has_value());
}

TEST_F(AsyncPoolDecides, FreesOnceAndOnlyWhatBeginsThere) {
  const uint64_t offset = Allocate(kMiB).value();
  EXPECT_FALSE(pool_.Free(offset + 512, std::nullopt));
  EXPECT_TRUE(pool_.Free(offset, std::nullopt));
  EXPECT_FALSE(pool_.Free(offset, std::nullopt));
}

TEST_F(AsyncPoolDecides, KnowsWhichAllocationHoldsAnAddress) {
  const uint64_t offset = Allocate(1000).value();
  EXPECT_EQ(pool_.LiveAt(offset + 999), (AsyncExtent{offset, 1000}));
  EXPECT_EQ(pool_.LiveAt(offset + 1000), std::nullopt) << "nobody asked for the rest of its last unit";
  EXPECT_EQ(pool_.LiveAt(UINT64_MAX), std::nullopt);
}

TEST_F(AsyncPoolDecides, AHighMarkFallsToWhatIsThere) {
  Free(Allocate(kMiB).value(), 1);
  EXPECT_EQ(pool_.used.high, kMiB);
  pool_.used.Reset();
  EXPECT_EQ(pool_.used.high, 0u);
}

}  // namespace
}  // namespace commpool::internal::emulator
