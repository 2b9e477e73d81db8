// Memory that does not serve everybody. That of a captured graph: a part that serves nobody else until the graph is
// gone. That of streams that nobody promised: only a call that passes such a stream can reach it. The stream takes its
// own memory at once; other streams take it after a fence or a wait.
#include <map>

#include "src/library/engine/expandable_engine.h"
#include "src/library/engine/symmetric_engine.h"
#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

constexpr Part kGraph = 11;
constexpr Part kOtherGraph = 12;

class Parts : public EngineTest<CachingEngine> {
 protected:
  Parts() : EngineTest(EngineOptions()) { engine().AddSegment({kBase, 2 * kMiB}); }

  // 0 where the engine wants to grow.
  Address Allocate(uint64_t bytes, Part part = kCommonPart, StreamKey stream = kStream) {
    return TryServe(bytes, stream, Reuse::kSameStream, part);
  }
  // The capture has ended, and its graph is gone.
  void ReleasePart(Part part) { EndPart(part, engine().StreamsOf(part)); }
};

class SymmetricParts : public EngineTest<SymmetricEngine> {
 protected:
  SymmetricParts() : EngineTest(EngineOptions(), FreeOrder::kDeferred) { engine().AddSegment({kBase, 8 * kMiB}); }
};

TEST_F(Parts, AreServedFromIdleMemoryOfThePool) {
  const Address address = Allocate(kMiB, kGraph);
  EXPECT_EQ(address, kBase);
  EXPECT_EQ(engine().PartOf(address), kGraph);
  EXPECT_EQ(engine().PartOf(address + kMiB), kCommonPart) << "the rest stays the pool's";
  EXPECT_EQ(engine().PartOf(0), kCommonPart);
}

TEST_F(Parts, GetNoMemoryThatAStreamMayStillUse) {
  const Address address = Allocate(2 * kMiB);
  Free(address);
  EXPECT_EQ(Allocate(kMiB, kGraph), 0u) << "a graph may run at any time";
  WaitForDevice();
  EXPECT_EQ(Allocate(kMiB, kGraph), address);
}

TEST_F(Parts, KeepMemoryThatTheirGraphFreed) {
  const Address address = Allocate(kMiB, kGraph);
  Free(address);
  EXPECT_EQ(Allocate(2 * kMiB), 0u);
  EXPECT_NE(Allocate(kMiB), address) << "the other half";
  EXPECT_EQ(Allocate(kMiB), 0u);
  EXPECT_EQ(Allocate(kMiB, kOtherGraph), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph), address);
}

TEST_F(Parts, CountTheirFreeMemoryAsNobodys) {
  Free(Allocate(kMiB, kGraph));
  EXPECT_EQ(counters().allocated_bytes.current, 0u);
  EXPECT_EQ(counters().free_bytes, 2 * kMiB);
  EXPECT_EQ(counters().largest_free_block_bytes, kMiB);
  EXPECT_EQ(counters().pending_bytes, kMiB);
  EXPECT_EQ(engine().Snapshot()[0].state, COMMPOOL_BLOCK_PENDING);
  EXPECT_FALSE(engine().heap().IsWhollyFree(0));
  EXPECT_TRUE(engine().StreamsOf().empty()) << "waiting for a stream would not help";
}

TEST_F(Parts, OwnSegmentsThatCameForThem) {
  engine().AddSegment({kBase + kGiB, 8 * kMiB}, Space::kLarge, kGraph);
  EXPECT_EQ(Allocate(8 * kMiB), 0u);
  EXPECT_EQ(Allocate(8 * kMiB, kGraph), kBase + kGiB);
}

TEST_F(Parts, MergeTheirOwnFreeMemoryAndNoOthers) {
  const Address low = Allocate(512 * kKiB, kGraph);
  const Address high = Allocate(512 * kKiB, kGraph);
  const Address others = Allocate(512 * kKiB, kOtherGraph);
  FreeAll({low, others, high});
  EXPECT_EQ(counters().largest_free_block_bytes, 512 * kKiB);
  EXPECT_EQ(Allocate(kMiB, kOtherGraph), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph), low);
}

TEST_F(Parts, ServeTheirBlocksInTheirStreamsOrderAlone) {
  const Address address = Allocate(2 * kMiB, kGraph);
  Free(address);
  EXPECT_EQ(Allocate(kMiB, kGraph, kOther), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph, kStream), address);
}

TEST_F(Parts, LeaveABlockUnusedThatSeveralStreamsUsed) {
  const Address address = Allocate(2 * kMiB, kGraph);
  Record(address, kOther);
  EXPECT_TRUE(Free(address).empty()) << "no fence can be recorded";
  EXPECT_EQ(Allocate(kMiB, kGraph, kStream), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph, kOther), 0u);
  ReleasePart(kGraph);
  EXPECT_EQ(Allocate(2 * kMiB), address);
}

TEST_F(Parts, BecomeThePoolsWhenTheirGraphIsGone) {
  Free(Allocate(512 * kKiB, kGraph));
  Free(Allocate(512 * kKiB, kOtherGraph));
  ReleasePart(kGraph);
  EXPECT_EQ(counters().largest_free_block_bytes, kMiB) << "the other graph's lies between";
  ReleasePart(kOtherGraph);
  EXPECT_TRUE(engine().IsIdle(0)) << "a graph that is gone uses nothing";
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

TEST_F(Parts, LeaveLiveBlocksToThePoolWhenTheirGraphIsGone) {
  const Address address = Allocate(kMiB, kGraph);
  ReleasePart(kGraph);
  EXPECT_EQ(engine().PartOf(address), kCommonPart);
  Free(address);
  EXPECT_EQ(Allocate(2 * kMiB, kCommonPart, kOther), 0u) << "the first stream may still use it";
  EXPECT_EQ(Allocate(2 * kMiB), address);
}

TEST_F(Parts, KeepTheUsesOfWhatIsFreedOnceTheCaptureHasEnded) {
  const Address freed_in_it = Allocate(512 * kKiB, kGraph);
  Allocate(512 * kKiB);  // lies between
  const Address freed_later = Allocate(kMiB, kGraph);
  Free(freed_in_it);
  engine().ClosePart(kGraph, engine().Now(), {});
  Free(freed_later);
  engine().ReleasePart(kGraph);
  EXPECT_FALSE(engine().IsIdle(0)) << "the stream may use the later one outside of the graph";
  EXPECT_EQ(Allocate(512 * kKiB, kCommonPart, kOther), freed_in_it);
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), 0u);
  engine().StreamIdle(kStream, engine().Now());
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), freed_later);
}

// The capture ended before its announcement did, and the stream worked on.
TEST_F(Parts, KeepTheUsesOfWhatIsFreedBetweenTheEndOfTheCaptureAndThatOfItsAnnouncement) {
  const Address inside = Allocate(512 * kKiB, kGraph);
  Allocate(512 * kKiB);  // lies between
  const Address behind = Allocate(kMiB, kGraph);
  Free(inside);
  const Moment end = engine().Now();
  Free(behind);
  engine().ClosePart(kGraph, end, {});
  engine().ReleasePart(kGraph);
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), 0u) << "the stream may use it outside of the graph";
  EXPECT_EQ(Allocate(512 * kKiB, kCommonPart, kOther), inside);
  EXPECT_EQ(Allocate(kMiB), behind);
}

TEST_F(Parts, KeepTheUsesOfStreamsThatWereOutsideOfTheCapture) {
  const Address address = Allocate(kMiB, kGraph);
  Record(address, kOther);
  Free(address);
  EndPart(kGraph);
  EXPECT_EQ(Allocate(2 * kMiB), 0u) << "work of the other may use it";
  EXPECT_EQ(Allocate(2 * kMiB, kCommonPart, kOther), kBase);
}

TEST_F(Parts, CloseABlockThatImportersHold) {
  const Address address = Allocate(kMiB, kGraph);
  ASSERT_TRUE(engine().Free(address, ReasonsOf(Reason::kImporters)).ok());
  ReleasePart(kGraph);
  EXPECT_EQ(Allocate(2 * kMiB), 0u) << "the graph is gone, and they still read it";
  EXPECT_TRUE(engine().EndReason(address, Reason::kImporters));
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

TEST_F(Parts, LeaveTheStreamsOfALiveBlockKnownWhenTheirGraphIsGone) {
  const Address address = Allocate(kMiB, kGraph);
  Record(address, kOther);
  ReleasePart(kGraph);
  EXPECT_EQ(Free(address), std::vector<StreamKey>{kOther});
}

TEST_F(Parts, MayBeUnknown) {
  ReleasePart(77);
  EXPECT_EQ(engine().Free(kBase).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

TEST_F(SymmetricParts, ForgetAStreamWhoseFenceABlockOfTheGraphMisses) {
  const Address address = TryServe(kMiB, kStream, Reuse::kAnyStream, kGraph);
  Record(address, kOther);
  Free(address);
  engine().ForgetStream(kOther);
  engine().ReleasePart(kGraph);
  EXPECT_TRUE(engine().MissingFences().empty()) << "its handle may mean another stream by now";
}

// New pages of an expandable engine that only the part uses.
class PartGrowth : public EngineTest<ExpandableEngine> {
 protected:
  static constexpr uint64_t kPage = 2 * kMiB;

  PartGrowth() : EngineTest(EngineOptions{.choice = Choice::kFirstFit, .page_bytes = kPage}) {
    engine().AddTerritory({kBase, 64 * kPage}, Space::kLarge);
  }

  Address Allocate(uint64_t bytes, StreamKey stream, Part part = kCommonPart) {
    return TryServe(bytes, stream, Reuse::kSameStream, part);
  }
  Expansion Grow(uint64_t bytes, StreamKey stream, Part part, std::optional<StreamKey> claimant = {}) {
    EXPECT_GT(GrowthFor(bytes, stream, Reuse::kSameStream, part), 0u);
    Expansion plan = engine().Plan(bytes, stream, Donors::kNone, part).value();
    if (claimant) plan.claimant.stream = claimant;
    EXPECT_TRUE(engine().Claim(plan));
    engine().Complete(plan);
    return plan;
  }
};

TEST_F(PartGrowth, MakesPagesThatAreThePartsAlone) {
  EXPECT_EQ(Grow(3 * kPage, kStream, kGraph).made_bytes(), 3 * kPage);
  EXPECT_EQ(Allocate(kPage, kStream), 0u);
  const Address address = Allocate(2 * kPage, kStream, kGraph);
  EXPECT_EQ(address, kBase);
  EXPECT_EQ(GrowthFor(kPage, kStream, Reuse::kSameStream, kGraph), 0u) << "one page is left";
  Free(address);
  EndPart(kGraph);
  EXPECT_EQ(Allocate(3 * kPage, kOther), kBase);
}

TEST_F(PartGrowth, FillsUpThePartsMemoryAndLeavesThePoolsAlone) {
  Grow(2 * kPage, kStream, kGraph);
  const Address first = Allocate(2 * kPage, kStream, kGraph);
  Grow(kPage, kOther, kCommonPart);
  Free(Allocate(kPage, kOther));  // behind it
  Free(first);
  EXPECT_EQ(Grow(3 * kPage, kStream, kGraph).made_bytes(), 3 * kPage) << "no room between";
  const Address second = Allocate(3 * kPage, kStream, kGraph);
  EXPECT_EQ(second, kBase + 3 * kPage);
  Free(second);
  EXPECT_EQ(Grow(5 * kPage, kStream, kGraph).made_bytes(), 2 * kPage) << "it goes on where its last memory ends";
  EXPECT_EQ(Allocate(5 * kPage, kStream, kGraph), second);
  EXPECT_EQ(Allocate(kPage, kOther), kBase + 2 * kPage);
}

TEST_F(PartGrowth, ForAStreamMergesWithNothingThatOthersUsed) {
  Grow(kPage, kOther, kCommonPart);
  Free(Allocate(kPage, kOther));
  Grow(2 * kPage, kStream, kCommonPart, kStream);
  EXPECT_EQ(Allocate(2 * kPage, kStream), kBase + kPage);
}

constexpr StreamKey kPromised = 64;
constexpr StreamKey kMortal = 1 << 3 | kUnpromisedBit;
constexpr StreamKey kUnpromised = 2 << 3 | kUnpromisedBit;

class Stranded : public EngineTest<CachingEngine> {
 protected:
  Stranded() : EngineTest(EngineOptions()) { engine().AddSegment({kBase, 8 * kMiB}); }

  // Whether it served the request, and freed the block again.
  bool Serves(uint64_t bytes, StreamKey stream, Reuse reuse = Reuse::kAnyStream) {
    const std::optional<Served> served = Ask(bytes, stream, reuse);
    if (!served) return false;
    waits_ = served->waits;
    Free(served->address);
    return true;
  }

  Waits waits_;
};

class StrandedPages : public EngineTest<ExpandableEngine> {
 protected:
  StrandedPages() : EngineTest(ExpandableOptions()) {}

  GrowthPlan Grow(uint64_t bytes, StreamKey stream) {
    GrowthRequest request{.bytes = bytes, .stream = stream};
    GrowthPlan plan = engine().PlanGrowth(request).value();
    while (plan.again) plan = engine().PlanGrowth(request).value();
    EXPECT_TRUE(engine().Claim(plan.pages));
    engine().Complete(plan.pages);
    return plan;
  }
};

using StrandedFrees = SymmetricParts;

TEST_F(Stranded, ServesItsOwnStreamAtOnce) {
  Free(Serve(8 * kMiB, kMortal));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream));
  EXPECT_TRUE(waits_.empty());
}

TEST_F(Stranded, ServesNoOtherEvenAfterAWait) {
  Free(Serve(8 * kMiB, kMortal));
  for (const StreamKey stream : {kPromised, kUnpromised}) EXPECT_FALSE(Serves(kMiB, stream)) << stream;
  EXPECT_EQ(engine().StrandedBytes(), (std::map<StreamKey, uint64_t>{{kMortal, 8 * kMiB}}));
}

TEST_F(Stranded, LeavesIdleMemoryToEverybody) {
  Free(Serve(2 * kMiB, kMortal));
  EXPECT_TRUE(Serves(6 * kMiB, kPromised, Reuse::kIdle)) << "it does not merge with what is beside it";
  EXPECT_FALSE(Serves(8 * kMiB, kUnpromised));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream) || Serves(2 * kMiB, kMortal, Reuse::kSameStream));
}

TEST_F(Stranded, ServesItsOwnStreamInOnePieceWithIdleMemory) {
  Free(Serve(2 * kMiB, kMortal));
  EXPECT_TRUE(Serves(8 * kMiB, kMortal, Reuse::kSameStream));
}

TEST_F(Stranded, IsNotLookedAtForAStreamThatHasFreedNothing) {
  Block* const block = engine().heap().Find(Serve(kMiB, kMortal));
  Block* const rest = std::exchange(block->next, block);  // a walk over all blocks does not end
  EXPECT_EQ(engine_->AllocateOwn(16 * kMiB, kUnpromised).bytes, 0u);
  block->next = rest;
}

TEST_F(Stranded, ServesOthersBehindAFence) {
  Free(Serve(8 * kMiB, kMortal));
  engine().FenceStream(kMortal, Fence{5}, engine().Now());
  EXPECT_TRUE(engine().StrandedBytes().empty());
  EXPECT_EQ(Ask(8 * kMiB, kUnpromised, Reuse::kAnyStream).value().waits, (Waits{{kMortal, Fence{5}}}));
  engine().FencePassed(5);
}

TEST_F(Stranded, StaysStrandedWhereItWasFreedAfterTheFence) {
  const Address first = Serve(4 * kMiB, kMortal);
  const Address second = Serve(4 * kMiB, kMortal);
  Free(first);
  const Moment moment = engine().Now();
  Free(second);
  engine().FenceStream(kMortal, Fence{5}, moment);
  EXPECT_FALSE(Serves(8 * kMiB, kPromised));
}

TEST_F(Stranded, IsFreeForEverybodyAfterAWaitForTheDevice) {
  Free(Serve(8 * kMiB, kMortal));
  WaitForDevice();
  EXPECT_TRUE(Serves(8 * kMiB, kPromised, Reuse::kIdle));
}

TEST_F(Stranded, IsABlockWhoseFenceOfSuchAStreamIsMissing) {
  const Address block = Serve(8 * kMiB, kPromised);
  Record(block, kMortal);
  EXPECT_EQ(Free(block), (std::vector<StreamKey>{kMortal}));
  EXPECT_FALSE(Serves(8 * kMiB, kPromised)) << "it is closed";
  WaitForDevice();
  EXPECT_FALSE(Serves(8 * kMiB, kPromised)) << "who waited knows whether the fence is still missing";
  engine().CancelFence(MissingOf(engine(), block, kMortal));
  EXPECT_TRUE(Serves(8 * kMiB, kPromised, Reuse::kIdle));
}

TEST_F(StrandedPages, AreNeitherUnitedNorMovedNorWaitedFor) {
  EXPECT_GT(GrowthFor(4 * kMiB, kPromised, Reuse::kAnyStream), 0u);
  engine().AddTerritory({kBase, kGiB}, Space::kLarge);
  Grow(64 * kMiB, kMortal);
  Free(Serve(64 * kMiB, kMortal));
  const GrowthPlan plan = Grow(64 * kMiB, kPromised);
  EXPECT_EQ(plan.pages.moved_bytes(), 0u);
  EXPECT_EQ(plan.pages.made_bytes(), 64 * kMiB);
  const std::optional<Served> served = Ask(64 * kMiB, kPromised, Reuse::kAnyStream);
  ASSERT_TRUE(served) << "what came did not merge with what is stranded";
  EXPECT_EQ(served->waits, Waits());
}

TEST_F(StrandedFrees, OfASymmetricPoolAreOfferedOnceTheDeviceIsDone) {
  const Address block = Serve(kMiB, kMortal);
  EXPECT_FALSE(engine().AnyClosedLacksFenceOf(IsUnpromised));
  Free(block);
  EXPECT_TRUE(engine().AnyClosedLacksFenceOf(IsUnpromised));
  EXPECT_TRUE(engine().LocallyFreed().empty());
  WaitForDevice();
  EXPECT_FALSE(engine().AnyClosedLacksFenceOf(IsUnpromised));
  EXPECT_EQ(engine().LocallyFreed().size(), 1u);
  engine().ApplyFrees(engine().LocallyFreed());
}

}  // namespace
}  // namespace commpool::internal::engine
