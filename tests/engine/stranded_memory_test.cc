// Memory of streams that nobody promised: only a call that passes such a stream can reach it. The stream takes its own
// memory at once; other streams take it after a fence or a wait.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "src/library/engine/symmetric_engine.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kPromised = 64;
bool IsStrandedStream(StreamKey stream) { return IsUnpromised(stream); }
constexpr StreamKey kMortal = 1 << 3 | kUnpromisedBit;
constexpr StreamKey kOther = 2 << 3 | kUnpromisedBit;

class Stranded : public ::testing::Test {
 protected:
  Stranded() { engine_.AddSegment({kBase, 8 * kMiB}); }

  Result<Outcome> Ask(uint64_t bytes, StreamKey stream, Reuse reuse) {
    Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    CheckInvariants(engine_);
    return outcome;
  }
  bool Serves(uint64_t bytes, StreamKey stream, Reuse reuse = Reuse::kAnyStream) {
    const Result<Outcome> outcome = Ask(bytes, stream, reuse);
    if (std::holds_alternative<Grow>(*outcome)) return false;
    waits_ = std::get<Served>(*outcome).waits;
    Free(std::get<Served>(*outcome).address);
    return true;
  }
  Address Serve(uint64_t bytes, StreamKey stream) {
    return std::get<Served>(*Ask(bytes, stream, Reuse::kSameStream)).address;
  }
  Freed Free(Address address) {
    Result<Freed> freed = engine_.Free(address);
    EXPECT_TRUE(freed.ok());
    CheckInvariants(engine_);
    return *freed;
  }

  CachingEngine engine_{{}};
  std::vector<StreamUse> waits_;
};

TEST_F(Stranded, ServesItsOwnStreamAtOnce) {
  Free(Serve(8 * kMiB, kMortal));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(Stranded, ServesNoOtherEvenAfterAWait) {
  Free(Serve(8 * kMiB, kMortal));
  for (const StreamKey stream : {kPromised, kOther}) EXPECT_FALSE(Serves(kMiB, stream)) << stream;
  EXPECT_EQ(engine_.StrandedBytes(), (std::map<StreamKey, uint64_t>{{kMortal, 8 * kMiB}}));
}

TEST_F(Stranded, LeavesIdleMemoryToEverybody) {
  Free(Serve(2 * kMiB, kMortal));
  EXPECT_TRUE(Serves(6 * kMiB, kPromised, Reuse::kIdle)) << "it does not merge with what is beside it";
  EXPECT_FALSE(Serves(8 * kMiB, kOther));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream) || Serves(2 * kMiB, kMortal, Reuse::kSameStream));
}

TEST_F(Stranded, ServesItsOwnStreamInOnePieceWithIdleMemory) {
  Free(Serve(2 * kMiB, kMortal));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream));
}

TEST_F(Stranded, ServesOthersBehindAFence) {
  const Address block = Serve(8 * kMiB, kMortal);
  Free(block);
  engine_.FenceStream(kMortal, Fence{5}, engine_.Now());
  CheckInvariants(engine_);
  EXPECT_TRUE(engine_.StrandedBytes().empty());
  const Result<Outcome> outcome = Ask(8 * kMiB, kOther, Reuse::kAnyStream);
  ASSERT_TRUE(std::holds_alternative<Served>(*outcome));
  EXPECT_EQ(std::get<Served>(*outcome).waits, (std::vector<StreamUse>{{kMortal, Fence{5}}}));
  engine_.FencePassed(5);
  CheckInvariants(engine_);
}

TEST_F(Stranded, StaysStrandedWhereItWasFreedAfterTheFence) {
  const Address first = Serve(4 * kMiB, kMortal);
  const Address second = Serve(4 * kMiB, kMortal);
  Free(first);
  const Moment moment = engine_.Now();
  Free(second);
  engine_.FenceStream(kMortal, Fence{5}, moment);
  CheckInvariants(engine_);
  EXPECT_FALSE(Serves(8 * kMiB, kPromised));
}

TEST_F(Stranded, IsFreeForEverybodyAfterAWaitForTheDevice) {
  Free(Serve(8 * kMiB, kMortal));
  engine_.DeviceIdle(0, engine_.Now());
  EXPECT_TRUE(Serves(8 * kMiB, kPromised, Reuse::kIdle));
}

TEST_F(Stranded, IsABlockWhoseFenceOfSuchAStreamIsMissing) {
  const Address block = Serve(8 * kMiB, kPromised);
  ASSERT_TRUE(engine_.RecordStream(block, kMortal).ok());
  EXPECT_EQ(StreamsOf(Free(block).missing), (std::vector<StreamKey>{kMortal}));
  EXPECT_FALSE(Serves(8 * kMiB, kPromised)) << "it is closed";
  engine_.DeviceIdle(0, engine_.Now());
  EXPECT_FALSE(Serves(8 * kMiB, kPromised)) << "who waited knows whether the fence is still missing";
  engine_.CancelFence(MissingOf(engine_, block, kMortal));
  CheckInvariants(engine_);
  EXPECT_TRUE(Serves(8 * kMiB, kPromised, Reuse::kIdle));
}

TEST(StrandedPages, AreNeitherUnitedNorMovedNorWaitedFor) {
  ExpandableEngine engine(ExpandableOptions());
  EXPECT_EQ(engine.GrowthFor(4 * kMiB, kPromised, Reuse::kAnyStream)->bytes > 0, true);
  engine.AddTerritory({kBase, kGiB}, Space::kLarge);
  const auto grow = [&](uint64_t bytes, StreamKey stream) {
    GrowthRequest request{.bytes = bytes, .stream = stream};
    Result<GrowthPlan> plan = engine.PlanGrowth(request);
    while (plan.ok() && plan->again) plan = engine.PlanGrowth(request);
    EXPECT_TRUE(plan.ok() && engine.Claim(plan->pages));
    engine.Complete(plan->pages);
    CheckInvariants(engine);
    return *plan;
  };
  grow(64 * kMiB, kMortal);
  const auto block = std::get<Served>(*engine.Allocate(64 * kMiB, kMortal, Reuse::kSameStream)).address;
  ASSERT_TRUE(engine.Free(block).ok());
  const GrowthPlan plan = grow(64 * kMiB, kPromised);
  EXPECT_EQ(plan.pages.moved_bytes(), 0u);
  EXPECT_EQ(plan.pages.made_bytes(), 64 * kMiB);
  const Result<Outcome> served = engine.Allocate(64 * kMiB, kPromised, Reuse::kAnyStream);
  EXPECT_TRUE(std::holds_alternative<Served>(*served)) << "what came did not merge with what is stranded";
  EXPECT_TRUE(std::get<Served>(*served).waits.empty());
}

TEST(StrandedFrees, OfASymmetricPoolAreOfferedOnceTheDeviceIsDone) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 8 * kMiB});
  const auto block = std::get<Served>(*engine.Allocate(kMiB, kMortal)).address;
  EXPECT_FALSE(engine.AnyClosedLacksFenceOf(IsStrandedStream));
  ASSERT_TRUE(engine.Free(block).ok());
  EXPECT_TRUE(engine.AnyClosedLacksFenceOf(IsStrandedStream));
  EXPECT_TRUE(engine.LocallyFreed().empty());
  engine.DeviceIdle(0, engine.Now());
  EXPECT_FALSE(engine.AnyClosedLacksFenceOf(IsStrandedStream));
  EXPECT_EQ(engine.LocallyFreed().size(), 1u);
  engine.ApplyFrees(engine.LocallyFreed());
  CheckInvariants(engine);
}

}  // namespace
}  // namespace commpool::internal::engine
