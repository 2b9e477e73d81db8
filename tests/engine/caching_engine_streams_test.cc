// A freed block: which stream gets it, and which other streams that one must wait for.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr uint64_t kWhole = 2 * kMiB;
constexpr StreamKey kOwn = 1;
constexpr StreamKey kOther = 2;
constexpr StreamKey kThird = 3;

class CachingEngineStreams : public ::testing::Test {
 protected:
  CachingEngineStreams() : engine_({}) { engine_.AddSegment({kBase, kWhole}); }

  std::optional<Served> Ask(StreamKey stream, Reuse reuse, uint64_t bytes = kWhole) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    CheckInvariants(engine_);
    EXPECT_TRUE(outcome.ok());
    if (std::holds_alternative<Grow>(*outcome)) return std::nullopt;
    return std::get<Served>(*outcome);
  }

  std::vector<StreamKey> Free(Address address) {
    const Result<Freed> freed = engine_.Free(address);
    CheckInvariants(engine_);
    EXPECT_TRUE(freed.ok());
    return StreamsOf(freed->missing);
  }

  void Attach(StreamKey stream, Fence fence, Address address = kBase) {
    engine_.AttachFence(MissingOf(engine_, address, stream), fence);
    CheckInvariants(engine_);
  }

  // A block of the whole segment, used by the streams, then freed.
  void UseAndFree(std::vector<StreamKey> streams) {
    const std::optional<Served> served = Ask(kOwn, Reuse::kAnyStream);
    ASSERT_TRUE(served.has_value());
    for (const StreamKey stream : streams) ASSERT_TRUE(engine_.RecordStream(served->address, stream).ok());
    EXPECT_EQ(Free(served->address), streams);
  }

  CachingEngine engine_;
};

using Waits = std::vector<StreamUse>;

TEST_F(CachingEngineStreams, ServesAnotherStreamOnlyWhereTheRequestAllowsAWait) {
  UseAndFree({});
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream).has_value());
  const std::optional<Served> served = Ask(kOther, Reuse::kAnyStream);
  ASSERT_TRUE(served.has_value());
  EXPECT_EQ(served->waits, (Waits{{kOwn, kNoFence}}));
}

TEST_F(CachingEngineStreams, ForgetsUsesThatTheNewOwnerWaitsFor) {
  UseAndFree({});
  Free(Ask(kOther, Reuse::kAnyStream)->address);
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, ClosesABlockUntilEveryFenceHasCome) {
  UseAndFree({kOther, kThird});
  EXPECT_EQ(engine_.counters().pending_bytes, kWhole);
  EXPECT_EQ(engine_.counters().largest_free_block_bytes, 0u);
  EXPECT_TRUE(engine_.WhollyFreeSegments().empty());
  EXPECT_EQ(engine_.Free(kBase).status().code(), StatusCode::kNotFound);
  EXPECT_NE(engine_.Free(kBase).status().message().find("freed already"), std::string::npos);
  Attach(kThird, 11);
  EXPECT_FALSE(Ask(kOwn, Reuse::kAnyStream).has_value());
  Attach(kOther, 12);
  EXPECT_EQ(engine_.counters().pending_bytes, kWhole);
  EXPECT_EQ(engine_.WhollyFreeSegments(), (std::vector<SegmentIndex>{0}));
  EXPECT_FALSE(Ask(kOwn, Reuse::kSameStream).has_value());
  EXPECT_EQ(Ask(kOwn, Reuse::kAnyStream)->waits, (Waits{{kOther, 12}, {kThird, 11}}));
  EXPECT_EQ(engine_.counters().pending_bytes, 0u);
}

TEST_F(CachingEngineStreams, FreesABlockForItsStreamWhenTheFencesHavePassed) {
  UseAndFree({kOther});
  Attach(kOther, 11);
  engine_.FencePassed(11);
  CheckInvariants(engine_);
  EXPECT_EQ(engine_.counters().pending_bytes, 0u);
  EXPECT_TRUE(Ask(kOwn, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, NeverMakesAStreamWaitForItself) {
  UseAndFree({kOther});
  Attach(kOther, 11);
  EXPECT_EQ(Ask(kOther, Reuse::kAnyStream)->waits, (Waits{{kOwn, kNoFence}}));
}

TEST_F(CachingEngineStreams, RecordsAStreamOnce) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  for (const StreamKey stream : {kOther, kOwn, kOther}) EXPECT_TRUE(engine_.RecordStream(address, stream).ok());
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{kOther}));
}

TEST_F(CachingEngineStreams, KeepsFencesPendingUntilTheyPass) {
  UseAndFree({kOther, kThird});
  Attach(kThird, 21);
  Attach(kOther, 11);
  EXPECT_EQ(engine_.PendingFences(), (std::vector<Fence>{21, 11})) << "in the order in which they came";
  Ask(kOwn, Reuse::kAnyStream);
  EXPECT_EQ(engine_.PendingFences(), (std::vector<Fence>{21, 11})) << "somebody must give their events back";
  engine_.FencePassed(21);
  engine_.FencePassed(21);
  engine_.FencePassed(99);
  EXPECT_EQ(engine_.PendingFences(), (std::vector<Fence>{11}));
  EXPECT_TRUE(engine_.HasPendingFences());
  engine_.FencePassed(11);
  EXPECT_FALSE(engine_.HasPendingFences());
}

TEST_F(CachingEngineStreams, KeepsFencesOfBothPartsOfASplitBlock) {
  UseAndFree({kOther});
  Attach(kOther, 11);
  EXPECT_EQ(Ask(kThird, Reuse::kAnyStream, kMiB)->waits, (Waits{{kOwn, kNoFence}, {kOther, 11}}));
  EXPECT_EQ(Ask(kThird, Reuse::kAnyStream, kMiB)->waits, (Waits{{kOwn, kNoFence}, {kOther, 11}}));
}

TEST_F(CachingEngineStreams, MergesNeighboursWhenTheirUsesBecomeEqual) {
  const Address low = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  const Address high = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  ASSERT_TRUE(engine_.RecordStream(high, kOther).ok());
  Free(low);
  Free(high);
  Attach(kOther, 11, high);
  EXPECT_FALSE(Ask(kOwn, Reuse::kAnyStream).has_value());
  engine_.FencePassed(11);
  EXPECT_TRUE(Ask(kOwn, Reuse::kSameStream).has_value());
}

TEST_F(CachingEngineStreams, GivesIdleMemoryToAnyStream) {
  UseAndFree({kOther});
  Attach(kOther, 11);
  engine_.DeviceIdle(0, engine_.Now());
  CheckInvariants(engine_);
  EXPECT_TRUE(engine_.PendingFences().empty());
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, KeepsUsesOfBlocksFreedAfterTheWaitBegan) {
  const Address low = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  ASSERT_TRUE(Ask(kThird, Reuse::kSameStream, 512).has_value()) << "apart: what is idle merges with its neighbour";
  const Address high = Ask(kOther, Reuse::kSameStream, kMiB - 512)->address;
  ASSERT_TRUE(engine_.RecordStream(high, kThird).ok());
  Free(low);
  const Moment moment = engine_.Now();
  Free(high);
  Attach(kThird, 11, high);
  engine_.DeviceIdle(0, moment);
  CheckInvariants(engine_);
  EXPECT_EQ(engine_.PendingFences(), (std::vector<Fence>{11}));
  EXPECT_EQ(Ask(kThird, Reuse::kSameStream, kMiB)->address, low);
  EXPECT_EQ(Ask(kOwn, Reuse::kAnyStream, kMiB - 512)->waits, (Waits{{kOther, kNoFence}, {kThird, 11}}));
}

TEST_F(CachingEngineStreams, CountsAMergedBlockAsFreedWithItsLatestPart) {
  const Address low = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  const Address high = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  Free(low);
  const Moment moment = engine_.Now();
  Free(high);
  engine_.DeviceIdle(0, moment);
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream, 512).has_value());
  engine_.DeviceIdle(0, engine_.Now());
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream, kWhole).has_value());
}

TEST_F(CachingEngineStreams, CountsWhatIsLeftOfABlockAsFreedWithIt) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  const Moment moment = engine_.Now();
  Free(address);
  ASSERT_TRUE(Ask(kOwn, Reuse::kSameStream, kMiB).has_value());
  engine_.DeviceIdle(0, moment);
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream, kMiB).has_value());
}

TEST_F(CachingEngineStreams, NeedsItsFenceEvenAfterTheDeviceWasIdle) {
  UseAndFree({kOther});
  engine_.DeviceIdle(0, engine_.Now());
  CheckInvariants(engine_);
  EXPECT_FALSE(Ask(kOwn, Reuse::kAnyStream).has_value());
  Attach(kOther, 11);
  engine_.FencePassed(11);
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream).has_value());
}

TEST_F(CachingEngineStreams, GivesMemoryToAnyStreamWhoseOwnStreamIsIdle) {
  const Address low = Ask(kOwn, Reuse::kSameStream, kMiB)->address;
  ASSERT_TRUE(Ask(kThird, Reuse::kSameStream, 512).has_value()) << "apart: what is idle merges with its neighbour";
  const Address high = Ask(kOther, Reuse::kSameStream, kMiB - 512)->address;
  Free(low);
  Free(high);
  engine_.StreamIdle(kOwn, engine_.Now() - 2);
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream, kMiB).has_value()) << "it was freed after the wait began";
  engine_.StreamIdle(kOwn, engine_.Now() - 1);
  CheckInvariants(engine_);
  EXPECT_EQ(Ask(kThird, Reuse::kSameStream, kMiB)->address, low) << "the last free that the wait covers";
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream, 512).has_value()) << "the other stream may still use its own";
}

TEST_F(CachingEngineStreams, ForgetsAStreamOnFreeBlocks) {
  UseAndFree({kOther});
  Attach(kOther, 11);
  engine_.ForgetStream(kOwn);
  engine_.ForgetStream(kOther);
  CheckInvariants(engine_);
  EXPECT_EQ(engine_.PendingFences(), (std::vector<Fence>{11}));
  EXPECT_TRUE(engine_.IsIdle(0));
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, ForgetsAStreamOnLiveBlocks) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  ASSERT_TRUE(engine_.RecordStream(address, kOther).ok());
  engine_.ForgetStream(kOwn);
  engine_.ForgetStream(kOther);
  CheckInvariants(engine_);
  EXPECT_TRUE(Free(address).empty());
  EXPECT_TRUE(engine_.IsIdle(0));
}

TEST_F(CachingEngineStreams, TellsARecycledKeyFromTheForgottenStream) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  engine_.ForgetStream(kOwn);
  ASSERT_TRUE(engine_.RecordStream(address, kOwn).ok()) << "a new stream of the same key";
  CheckInvariants(engine_);
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{kOwn}));
  Attach(kOwn, 11);
  EXPECT_EQ(Ask(kOther, Reuse::kAnyStream)->waits, (Waits{{kOwn, 11}}));
}

TEST_F(CachingEngineStreams, ForgetsNoUseOfAStreamThatCameAfterTheForgottenOne) {
  Free(Ask(kOwn, Reuse::kSameStream)->address);
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  engine_.ForgetStream(kOwn);
  Free(address);
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream)->waits.empty()) << "nobody's any more";
  Free(address);
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream).has_value());
}

// Two threads may record a fence for one free: the block takes one of them.
TEST_F(CachingEngineStreams, TakeOneFenceForEachStreamThatAFreeNamed) {
  UseAndFree({kOther});
  const MissingFence missing = MissingOf(engine_, kBase, kOther);
  EXPECT_FALSE(engine_.AttachFence({kBase, kThird, missing.freed_at}, 11)) << "no free asked for it";
  EXPECT_TRUE(engine_.AttachFence(missing, 12));
  EXPECT_FALSE(engine_.AttachFence(missing, 13)) << "it has its fence";
  EXPECT_DEATH(engine_.AttachFence(missing, kNoFence), "is none");
}

// A thread may record a fence while others serve the block, use it on the same stream, and free it again.
TEST_F(CachingEngineStreams, TakeNoFenceOfAnEarlierFree) {
  UseAndFree({kOther});
  const MissingFence first = MissingOf(engine_, kBase, kOther);
  Attach(kOther, 11);
  engine_.FencePassed(11);
  UseAndFree({kOther});
  EXPECT_FALSE(engine_.AttachFence(first, 12)) << "it was recorded before the second use";
  engine_.CancelFence(first);
  EXPECT_FALSE(Ask(kOwn, Reuse::kAnyStream).has_value());
  Attach(kOther, 13);
  EXPECT_TRUE(Ask(kThird, Reuse::kAnyStream).has_value());
}

TEST_F(CachingEngineStreams, AreClosedWhileTheirFreeNamesAReason) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  ASSERT_TRUE(engine_.Free(address, ReasonsOf(Reason::kImporters)).ok());
  EXPECT_FALSE(Ask(kOwn, Reuse::kSameStream).has_value());
  EXPECT_EQ(engine_.counters().allocated_bytes.current, 0u) << "the program has freed it";
  EXPECT_EQ(engine_.counters().pending_bytes, engine_.counters().free_bytes);
  EXPECT_TRUE(engine_.EndReason(address, Reason::kImporters));
  EXPECT_FALSE(engine_.EndReason(address, Reason::kImporters));
  EXPECT_TRUE(Ask(kOwn, Reuse::kSameStream).has_value());
}

TEST_F(CachingEngineStreams, LoseTheirMarksWithTheFree) {
  const Address address = Ask(kOwn, Reuse::kSameStream)->address;
  EXPECT_TRUE(engine_.SetMark(address, Mark::kShared));
  EXPECT_TRUE(engine_.AnyHasMark(Mark::kShared));
  EXPECT_FALSE(engine_.HasMark(address, Mark::kCopied));
  Free(address);
  EXPECT_FALSE(engine_.AnyHasMark(Mark::kShared));
  EXPECT_FALSE(engine_.SetMark(address, Mark::kShared)) << "it is not live";
  Ask(kOwn, Reuse::kSameStream);
  EXPECT_FALSE(engine_.HasMark(address, Mark::kShared)) << "another block at the same place";
}

}  // namespace
}  // namespace commpool::internal::engine
