// A freed block: which stream gets it, and which other streams that one must wait for.
#include "src/library/engine/caching_engine.h"
#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kWhole = 2 * kMiB;

class CachingEngineStreams : public EngineTest<CachingEngine> {
 protected:
  CachingEngineStreams() : EngineTest(EngineOptions()) { engine().AddSegment({kBase, kWhole}); }

  std::optional<Served> Ask(StreamKey stream, Reuse reuse, uint64_t bytes = kWhole) {
    return EngineTest::Ask(bytes, stream, reuse);
  }
  // A block of the whole segment, used by the streams, then freed.
  void UseAndFree(const std::vector<StreamKey>& streams) {
    const Address address = Serve(kWhole, kStream, Reuse::kAnyStream);
    for (const StreamKey stream : streams) Record(address, stream);
    EXPECT_EQ(Free(address), streams);
  }
  // The same by one other stream, whose fence has come.
  void UseAndFreeBehindFence(Fence fence) {
    UseAndFree({kOther});
    EXPECT_TRUE(Attach(kOther, fence));
  }
};

TEST_F(CachingEngineStreams, ServesAnotherStreamOnlyWhereTheRequestAllowsAWait) {
  UseAndFree({});
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream));
  EXPECT_EQ(Ask(kOther, Reuse::kAnyStream).value().waits, (Waits{{kStream, kNoFence}}));
}

TEST_F(CachingEngineStreams, ForgetsUsesThatTheNewOwnerWaitsFor) {
  UseAndFree({});
  Free(Serve(kWhole, kOther, Reuse::kAnyStream));
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, ClosesABlockUntilEveryFenceHasCome) {
  UseAndFree({kOther, kThird});
  EXPECT_EQ(counters().pending_bytes, kWhole);
  EXPECT_EQ(counters().largest_free_block_bytes, 0u);
  EXPECT_TRUE(engine().WhollyFreeSegments().empty());
  ExpectFailure(engine().Free(kBase).status(), StatusCode::kNotFound, "freed already");
  Attach(kThird, 11);
  EXPECT_FALSE(Ask(kStream, Reuse::kAnyStream));
  Attach(kOther, 12);
  EXPECT_EQ(counters().pending_bytes, kWhole);
  EXPECT_EQ(engine().WhollyFreeSegments(), (std::vector<SegmentIndex>{0}));
  EXPECT_FALSE(Ask(kStream, Reuse::kSameStream));
  EXPECT_EQ(Ask(kStream, Reuse::kAnyStream)->waits, (Waits{{kOther, 12}, {kThird, 11}}));
  EXPECT_EQ(counters().pending_bytes, 0u);
}

TEST_F(CachingEngineStreams, FreesABlockForItsStreamWhenTheFencesHavePassed) {
  UseAndFreeBehindFence(11);
  engine().FencePassed(11);
  EXPECT_EQ(counters().pending_bytes, 0u);
  EXPECT_TRUE(Ask(kStream, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, NeverMakesAStreamWaitForItself) {
  UseAndFreeBehindFence(11);
  EXPECT_EQ(Ask(kOther, Reuse::kAnyStream)->waits, (Waits{{kStream, kNoFence}}));
}

TEST_F(CachingEngineStreams, RecordsAStreamOnce) {
  const Address address = Serve(kWhole);
  for (const StreamKey stream : {kOther, kStream, kOther}) Record(address, stream);
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{kOther}));
}

TEST_F(CachingEngineStreams, KeepsFencesPendingUntilTheyPass) {
  UseAndFree({kOther, kThird});
  Attach(kThird, 21);
  Attach(kOther, 11);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{21, 11})) << "in the order in which they came";
  Ask(kStream, Reuse::kAnyStream);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{21, 11})) << "somebody must give their events back";
  engine().FencePassed(21);
  engine().FencePassed(21);
  engine().FencePassed(99);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{11}));
  EXPECT_TRUE(engine().HasPendingFences());
  engine().FencePassed(11);
  EXPECT_FALSE(engine().HasPendingFences());
}

TEST_F(CachingEngineStreams, KeepsFencesOfBothPartsOfASplitBlock) {
  UseAndFreeBehindFence(11);
  EXPECT_EQ(Ask(kThird, Reuse::kAnyStream, kMiB)->waits, (Waits{{kStream, kNoFence}, {kOther, 11}}));
  EXPECT_EQ(Ask(kThird, Reuse::kAnyStream, kMiB)->waits, (Waits{{kStream, kNoFence}, {kOther, 11}}));
}

TEST_F(CachingEngineStreams, MergesNeighboursWhenTheirUsesBecomeEqual) {
  const Address low = Serve(kMiB);
  const Address high = Serve(kMiB);
  Record(high, kOther);
  FreeAll({low, high});
  Attach(kOther, 11, high);
  EXPECT_FALSE(Ask(kStream, Reuse::kAnyStream));
  engine().FencePassed(11);
  EXPECT_TRUE(Ask(kStream, Reuse::kSameStream));
}

TEST_F(CachingEngineStreams, GivesIdleMemoryToAnyStream) {
  UseAndFreeBehindFence(11);
  WaitForDevice();
  EXPECT_TRUE(engine().PendingFences().empty());
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, KeepsUsesOfBlocksFreedAfterTheWaitBegan) {
  const Address low = Serve(kMiB);
  ASSERT_TRUE(Ask(kThird, Reuse::kSameStream, 512)) << "apart: what is idle merges with its neighbour";
  const Address high = Serve(kMiB - 512, kOther);
  Record(high, kThird);
  Free(low);
  const Moment moment = engine().Now();
  Free(high);
  Attach(kThird, 11, high);
  engine().DeviceIdle(0, moment);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{11}));
  EXPECT_EQ(Serve(kMiB, kThird), low);
  EXPECT_EQ(Ask(kStream, Reuse::kAnyStream, kMiB - 512)->waits, (Waits{{kOther, kNoFence}, {kThird, 11}}));
}

TEST_F(CachingEngineStreams, CountsAMergedBlockAsFreedWithItsLatestPart) {
  const Address low = Serve(kMiB);
  const Address high = Serve(kMiB);
  Free(low);
  const Moment moment = engine().Now();
  Free(high);
  engine().DeviceIdle(0, moment);
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream, 512));
  WaitForDevice();
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream, kWhole));
}

TEST_F(CachingEngineStreams, CountsWhatIsLeftOfABlockAsFreedWithIt) {
  const Address address = Serve(kWhole);
  const Moment moment = engine().Now();
  Free(address);
  ASSERT_TRUE(Ask(kStream, Reuse::kSameStream, kMiB));
  engine().DeviceIdle(0, moment);
  EXPECT_FALSE(Ask(kOther, Reuse::kSameStream, kMiB));
}

TEST_F(CachingEngineStreams, NeedsItsFenceEvenAfterTheDeviceWasIdle) {
  UseAndFree({kOther});
  WaitForDevice();
  EXPECT_FALSE(Ask(kStream, Reuse::kAnyStream));
  Attach(kOther, 11);
  engine().FencePassed(11);
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream));
}

TEST_F(CachingEngineStreams, GivesMemoryToAnyStreamWhoseOwnStreamIsIdle) {
  const Address low = Serve(kMiB);
  ASSERT_TRUE(Ask(kThird, Reuse::kSameStream, 512)) << "apart: what is idle merges with its neighbour";
  const Address high = Serve(kMiB - 512, kOther);
  FreeAll({low, high});
  engine().StreamIdle(kStream, engine().Now() - 2);
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream, kMiB)) << "it was freed after the wait began";
  engine().StreamIdle(kStream, engine().Now() - 1);
  EXPECT_EQ(Serve(kMiB, kThird), low) << "the last free that the wait covers";
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream, 512)) << "the other stream may still use its own";
}

TEST_F(CachingEngineStreams, ForgetsAStreamOnFreeBlocks) {
  UseAndFreeBehindFence(11);
  engine().ForgetStream(kStream);
  engine().ForgetStream(kOther);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{11}));
  EXPECT_TRUE(engine().IsIdle(0));
  EXPECT_TRUE(Ask(kThird, Reuse::kSameStream)->waits.empty());
}

TEST_F(CachingEngineStreams, ForgetsAStreamOnLiveBlocks) {
  const Address address = Serve(kWhole);
  Record(address, kOther);
  engine().ForgetStream(kStream);
  engine().ForgetStream(kOther);
  EXPECT_TRUE(Free(address).empty());
  EXPECT_TRUE(engine().IsIdle(0));
}

TEST_F(CachingEngineStreams, TellsARecycledKeyFromTheForgottenStream) {
  const Address address = Serve(kWhole);
  engine().ForgetStream(kStream);
  ASSERT_TRUE(engine().RecordStream(address, kStream).ok()) << "a new stream of the same key";
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{kStream}));
  Attach(kStream, 11);
  EXPECT_EQ(Ask(kOther, Reuse::kAnyStream)->waits, (Waits{{kStream, 11}}));
}

TEST_F(CachingEngineStreams, ForgetsNoUseOfAStreamThatCameAfterTheForgottenOne) {
  Free(Serve(kWhole));
  const Address address = Serve(kWhole);
  engine().ForgetStream(kStream);
  Free(address);
  EXPECT_TRUE(Ask(kOther, Reuse::kSameStream)->waits.empty()) << "nobody's any more";
  Free(address);
  EXPECT_FALSE(Ask(kThird, Reuse::kSameStream));
}

// Two threads may record a fence for one free: the block takes one of them.
TEST_F(CachingEngineStreams, TakeOneFenceForEachStreamThatAFreeNamed) {
  UseAndFree({kOther});
  const MissingFence missing = MissingOf(engine(), kBase, kOther);
  EXPECT_FALSE(engine().AttachFence({kBase, kThird, missing.freed_at}, 11)) << "no free asked for it";
  EXPECT_TRUE(engine().AttachFence(missing, 12));
  EXPECT_FALSE(engine().AttachFence(missing, 13)) << "it has its fence";
  EXPECT_DEATH(engine().AttachFence(missing, kNoFence), "is none");
}

// A thread may record a fence while others serve the block, use it on the same stream, and free it again.
TEST_F(CachingEngineStreams, TakeNoFenceOfAnEarlierFree) {
  UseAndFree({kOther});
  const MissingFence first = MissingOf(engine(), kBase, kOther);
  Attach(kOther, 11);
  engine().FencePassed(11);
  UseAndFree({kOther});
  EXPECT_FALSE(engine().AttachFence(first, 12)) << "it was recorded before the second use";
  engine().CancelFence(first);
  EXPECT_FALSE(Ask(kStream, Reuse::kAnyStream));
  Attach(kOther, 13);
  EXPECT_TRUE(Ask(kThird, Reuse::kAnyStream));
}

TEST_F(CachingEngineStreams, AreClosedWhileTheirFreeNamesAReason) {
  const Address address = Serve(kWhole);
  ASSERT_TRUE(engine().Free(address, ReasonsOf(Reason::kImporters)).ok());
  EXPECT_FALSE(Ask(kStream, Reuse::kSameStream));
  EXPECT_EQ(counters().allocated_bytes.current, 0u) << "the program has freed it";
  EXPECT_EQ(counters().pending_bytes, counters().free_bytes);
  EXPECT_TRUE(engine().EndReason(address, Reason::kImporters));
  EXPECT_FALSE(engine().EndReason(address, Reason::kImporters));
  EXPECT_TRUE(Ask(kStream, Reuse::kSameStream));
}

TEST_F(CachingEngineStreams, LoseTheirMarksWithTheFree) {
  const Address address = Serve(kWhole);
  EXPECT_TRUE(engine().SetMark(address, Mark::kShared));
  EXPECT_TRUE(engine().AnyHasMark(Mark::kShared));
  EXPECT_FALSE(engine().HasMark(address, Mark::kCopied));
  Free(address);
  EXPECT_FALSE(engine().AnyHasMark(Mark::kShared));
  EXPECT_FALSE(engine().SetMark(address, Mark::kShared)) << "it is not live";
  Ask(kStream, Reuse::kSameStream);
  EXPECT_FALSE(engine().HasMark(address, Mark::kShared)) << "another block at the same place";
}

}  // namespace
}  // namespace commpool::internal::engine
