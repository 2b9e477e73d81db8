// Memory of a captured graph: a part that serves nobody else until the graph is gone.
#include <gtest/gtest.h>

#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/engine/symmetric_engine.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;
constexpr Part kGraph = 11;
constexpr Part kOtherGraph = 12;

class Parts : public ::testing::Test {
 protected:
  Parts() { segment_ = engine_.AddSegment({kBase, 2 * kMiB}); }
  ~Parts() override { CheckInvariants(engine_); }

  // 0 where the engine wants to grow.
  Address Allocate(uint64_t bytes, Part part = kCommonPart, StreamKey stream = kStream,
                   Reuse reuse = Reuse::kSameStream) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse, part);
    EXPECT_TRUE(outcome.ok());
    CheckInvariants(engine_);
    return std::holds_alternative<Served>(*outcome) ? std::get<Served>(*outcome).address : 0;
  }
  std::vector<StreamKey> FreeInPart(Address address) {
    const Result<Freed> freed = engine_.Free(address);
    EXPECT_TRUE(freed.ok());
    CheckInvariants(engine_);
    return StreamsOf(freed->missing);
  }
  // The capture has ended, and its graph is gone.
  void ReleasePart(Part part) {
    engine_.ClosePart(part, engine_.Now(), engine_.StreamsOf(part));
    CheckInvariants(engine_);
    engine_.ReleasePart(part);
    CheckInvariants(engine_);
  }

  CachingEngine engine_{{}};
  SegmentIndex segment_ = 0;
};

TEST_F(Parts, AreServedFromIdleMemoryOfThePool) {
  const Address address = Allocate(kMiB, kGraph);
  EXPECT_EQ(address, kBase);
  EXPECT_EQ(engine_.PartOf(address), kGraph);
  EXPECT_EQ(engine_.PartOf(address + kMiB), kCommonPart) << "the rest stays the pool's";
  EXPECT_EQ(engine_.PartOf(0), kCommonPart);
}

TEST_F(Parts, GetNoMemoryThatAStreamMayStillUse) {
  const Address address = Allocate(2 * kMiB);
  ASSERT_TRUE(engine_.Free(address).ok());
  EXPECT_EQ(Allocate(kMiB, kGraph), 0u) << "a graph may run at any time";
  engine_.DeviceIdle(0, engine_.Now());
  EXPECT_EQ(Allocate(kMiB, kGraph), address);
}

TEST_F(Parts, KeepMemoryThatTheirGraphFreed) {
  const Address address = Allocate(kMiB, kGraph);
  FreeInPart(address);
  EXPECT_EQ(Allocate(2 * kMiB), 0u);
  EXPECT_NE(Allocate(kMiB), address) << "the other half";
  EXPECT_EQ(Allocate(kMiB), 0u);
  EXPECT_EQ(Allocate(kMiB, kOtherGraph), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph), address);
}

TEST_F(Parts, CountTheirFreeMemoryAsNobodys) {
  FreeInPart(Allocate(kMiB, kGraph));
  const Counters counters = engine_.counters();
  EXPECT_EQ(counters.allocated_bytes.current, 0u);
  EXPECT_EQ(counters.free_bytes, 2 * kMiB);
  EXPECT_EQ(counters.largest_free_block_bytes, kMiB);
  EXPECT_FALSE(engine_.heap().IsWhollyFree(segment_));
  EXPECT_TRUE(engine_.StreamsOf().empty()) << "waiting for a stream would not help";
}

TEST_F(Parts, OwnSegmentsThatCameForThem) {
  engine_.AddSegment({kBase + kGiB, 8 * kMiB}, Space::kLarge, kGraph);
  EXPECT_EQ(Allocate(8 * kMiB), 0u);
  EXPECT_EQ(Allocate(8 * kMiB, kGraph), kBase + kGiB);
}

TEST_F(Parts, MergeTheirOwnFreeMemoryAndNoOthers) {
  const Address low = Allocate(512 * kKiB, kGraph);
  const Address high = Allocate(512 * kKiB, kGraph);
  const Address others = Allocate(512 * kKiB, kOtherGraph);
  FreeInPart(low);
  FreeInPart(others);
  FreeInPart(high);
  EXPECT_EQ(engine_.counters().largest_free_block_bytes, 512 * kKiB);
  EXPECT_EQ(Allocate(kMiB, kOtherGraph), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph), low);
}

TEST_F(Parts, ServeTheirBlocksInTheirStreamsOrderAlone) {
  const Address address = Allocate(2 * kMiB, kGraph);
  FreeInPart(address);
  EXPECT_EQ(Allocate(kMiB, kGraph, kOther), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph, kStream), address);
}

TEST_F(Parts, LeaveABlockUnusedThatSeveralStreamsUsed) {
  const Address address = Allocate(2 * kMiB, kGraph);
  ASSERT_TRUE(engine_.RecordStream(address, kOther).ok());
  EXPECT_TRUE(FreeInPart(address).empty()) << "no fence can be recorded";
  EXPECT_EQ(Allocate(kMiB, kGraph, kStream), 0u);
  EXPECT_EQ(Allocate(kMiB, kGraph, kOther), 0u);
  ReleasePart(kGraph);
  EXPECT_EQ(Allocate(2 * kMiB), address);
}

TEST_F(Parts, BecomeThePoolsWhenTheirGraphIsGone) {
  FreeInPart(Allocate(512 * kKiB, kGraph));
  FreeInPart(Allocate(512 * kKiB, kOtherGraph));
  ReleasePart(kGraph);
  EXPECT_EQ(engine_.counters().largest_free_block_bytes, kMiB) << "the other graph's lies between";
  ReleasePart(kOtherGraph);
  EXPECT_TRUE(engine_.IsIdle(segment_)) << "a graph that is gone uses nothing";
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

TEST_F(Parts, LeaveLiveBlocksToThePoolWhenTheirGraphIsGone) {
  const Address address = Allocate(kMiB, kGraph);
  ReleasePart(kGraph);
  EXPECT_EQ(engine_.PartOf(address), kCommonPart);
  ASSERT_TRUE(engine_.Free(address).ok());
  EXPECT_EQ(Allocate(2 * kMiB, kCommonPart, kOther), 0u) << "the first stream may still use it";
  EXPECT_EQ(Allocate(2 * kMiB), address);
}

TEST_F(Parts, KeepTheUsesOfWhatIsFreedOnceTheCaptureHasEnded) {
  const Address freed_in_it = Allocate(512 * kKiB, kGraph);
  Allocate(512 * kKiB);  // lies between
  const Address freed_later = Allocate(kMiB, kGraph);
  FreeInPart(freed_in_it);
  engine_.ClosePart(kGraph, engine_.Now(), {});
  FreeInPart(freed_later);
  engine_.ReleasePart(kGraph);
  CheckInvariants(engine_);
  EXPECT_FALSE(engine_.IsIdle(segment_)) << "the stream may use the later one outside of the graph";
  EXPECT_EQ(Allocate(512 * kKiB, kCommonPart, kOther), freed_in_it);
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), 0u);
  engine_.StreamIdle(kStream, engine_.Now());
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), freed_later);
}

// The capture ended before its announcement did, and the stream worked on.
TEST_F(Parts, KeepTheUsesOfWhatIsFreedBetweenTheEndOfTheCaptureAndThatOfItsAnnouncement) {
  const Address inside = Allocate(512 * kKiB, kGraph);
  Allocate(512 * kKiB);  // lies between
  const Address behind = Allocate(kMiB, kGraph);
  FreeInPart(inside);
  const Moment end = engine_.Now();
  FreeInPart(behind);
  engine_.ClosePart(kGraph, end, {});
  engine_.ReleasePart(kGraph);
  CheckInvariants(engine_);
  EXPECT_EQ(Allocate(kMiB, kCommonPart, kOther), 0u) << "the stream may use it outside of the graph";
  EXPECT_EQ(Allocate(512 * kKiB, kCommonPart, kOther), inside);
  EXPECT_EQ(Allocate(kMiB), behind);
}

TEST_F(Parts, KeepTheUsesOfStreamsThatWereOutsideOfTheCapture) {
  const Address address = Allocate(kMiB, kGraph);
  ASSERT_TRUE(engine_.RecordStream(address, kOther).ok());
  FreeInPart(address);
  engine_.ClosePart(kGraph, engine_.Now(), {});
  engine_.ReleasePart(kGraph);
  CheckInvariants(engine_);
  EXPECT_EQ(Allocate(2 * kMiB), 0u) << "work of the other may use it";
  EXPECT_EQ(Allocate(2 * kMiB, kCommonPart, kOther), kBase);
}

TEST_F(Parts, ForgetAStreamWhoseFenceABlockOfTheGraphMisses) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase + kGiB, 2 * kMiB});
  const Result<Outcome> outcome = engine.Allocate(kMiB, kStream, kGraph);
  const Address address = std::get<Served>(*outcome).address;
  ASSERT_TRUE(engine.RecordStream(address, kOther).ok());
  ASSERT_TRUE(engine.Free(address).ok());
  engine.ForgetStream(kOther);
  engine.ReleasePart(kGraph);
  CheckInvariants(engine);
  EXPECT_TRUE(engine.MissingFences().empty()) << "its handle may mean another stream by now";
}

TEST_F(Parts, CloseABlockThatImportersHold) {
  const Address address = Allocate(kMiB, kGraph);
  ASSERT_TRUE(engine_.Free(address, ReasonsOf(Reason::kImporters)).ok());
  CheckInvariants(engine_);
  ReleasePart(kGraph);
  EXPECT_EQ(Allocate(2 * kMiB), 0u) << "the graph is gone, and they still read it";
  EXPECT_TRUE(engine_.EndReason(address, Reason::kImporters));
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

TEST_F(Parts, LeaveTheStreamsOfALiveBlockKnownWhenTheirGraphIsGone) {
  const Address address = Allocate(kMiB, kGraph);
  ASSERT_TRUE(engine_.RecordStream(address, kOther).ok());
  ReleasePart(kGraph);
  EXPECT_EQ(StreamsOf(engine_.Free(address)->missing), std::vector<StreamKey>{kOther});
}

TEST_F(Parts, MayBeUnknown) {
  ReleasePart(77);
  EXPECT_EQ(engine_.Free(kBase).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Allocate(2 * kMiB), kBase);
}

}  // namespace
}  // namespace commpool::internal::engine
