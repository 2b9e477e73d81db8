#include "src/library/engine/caching_engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "src/library/base/bytes.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 1;

uint64_t BytesToGrow(const Result<Outcome>& outcome) { return std::get<Grow>(*outcome).bytes; }

Address Serve(CachingEngine& engine, uint64_t bytes, StreamKey stream = kStream) {
  const Result<Outcome> outcome = engine.Allocate(bytes, stream, Reuse::kSameStream);
  EXPECT_TRUE(outcome.ok() && std::holds_alternative<Served>(*outcome));
  CheckInvariants(engine);
  return std::get<Served>(*outcome).address;
}

void GiveBack(CachingEngine& engine, Address address) {
  const Result<Freed> freed = engine.Free(address);
  ASSERT_TRUE(freed.ok()) << freed.status().message();
  EXPECT_TRUE(freed->missing.empty());
  CheckInvariants(engine);
}

TEST(CachingEngine, AsksForASegmentWhereNothingFits) {
  CachingEngine engine({});
  EXPECT_EQ(BytesToGrow(engine.Allocate(60 * kKiB, kStream, Reuse::kSameStream)), 2 * kMiB);
  EXPECT_EQ(BytesToGrow(engine.Allocate(3 * kMiB, kStream, Reuse::kSameStream)), 8 * kMiB);
  EXPECT_EQ(BytesToGrow(engine.Allocate(61 * kMiB, kStream, Reuse::kSameStream)), 62 * kMiB);
  CachingEngine large({.segment_bytes = kGiB});
  EXPECT_EQ(BytesToGrow(large.Allocate(1, kStream, Reuse::kAnyStream)), kGiB);
}

TEST(CachingEngine, TellsTheGrowthThatARequestNeeds) {
  CachingEngine engine({});
  EXPECT_EQ(engine.GrowthFor(60 * kKiB, kStream, Reuse::kSameStream)->bytes, 2 * kMiB);
  engine.AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(engine.GrowthFor(60 * kKiB, kStream, Reuse::kSameStream)->bytes, 0u);
  EXPECT_EQ(engine.GrowthFor(3 * kMiB, kStream, Reuse::kAnyStream)->bytes, 8 * kMiB);
  EXPECT_EQ(engine.GrowthFor(0, kStream, Reuse::kAnyStream).status().code(), StatusCode::kInvalidArgument);
}

TEST(CachingEngine, ServesSmallBlocksFromLargeSegmentsOnlyWhereItMayNotGrow) {
  CachingEngine engine({.spaces = Spaces::kApart});
  engine.AddSegment({kBase, 8 * kMiB});
  EXPECT_EQ(BytesToGrow(engine.Allocate(60 * kKiB, kStream, Reuse::kSameStream)), 2 * kMiB);
  EXPECT_EQ(engine.GrowthFor(60 * kKiB, kStream, Reuse::kSameStream)->bytes, 2 * kMiB);
  EXPECT_EQ(engine.GrowthFor(60 * kKiB, kStream, Reuse::kSameStream, Part{1})->bytes, 0u);
  EXPECT_TRUE(std::holds_alternative<Served>(*engine.Allocate(60 * kKiB, kStream, Reuse::kAnyStream)));
  EXPECT_TRUE(std::holds_alternative<Served>(*engine.Allocate(60 * kKiB, kStream, Reuse::kSameStream, Part{1})));
}

TEST(CachingEngine, ServesManyBlocksFromOneSegment) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  const Result<Outcome> first = engine.Allocate(1000, kStream, Reuse::kSameStream);
  EXPECT_EQ(std::get<Served>(*first).address, kBase);
  EXPECT_EQ(std::get<Served>(*first).bytes, 1024u);
  EXPECT_TRUE(std::get<Served>(*first).waits.empty());
  EXPECT_EQ(Serve(engine, 512), kBase + 1024);
}

TEST(CachingEngine, AlignsEveryBlock) {
  CachingEngine engine({.alignment = 4096});
  engine.AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(Serve(engine, 1), kBase);
  EXPECT_EQ(Serve(engine, 1), kBase + 4096);
}

TEST(CachingEngine, ReusesAFreedBlockAtOnceOnItsStream) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Serve(engine, 2 * kMiB);
  GiveBack(engine, address);
  EXPECT_EQ(Serve(engine, 2 * kMiB), address);
}

TEST(CachingEngine, CountsBytesAndBlocks) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  const Address low = Serve(engine, 1000);
  Serve(engine, 512);
  GiveBack(engine, low);
  const Counters counters = engine.counters();
  EXPECT_EQ(counters.requested_bytes.current, 512u);
  EXPECT_EQ(counters.requested_bytes.peak, 1512u);
  EXPECT_EQ(counters.allocated_bytes.current, 512u);
  EXPECT_EQ(counters.allocated_bytes.peak, 1536u);
  EXPECT_EQ(counters.allocated_bytes.total, 1536u);
  EXPECT_EQ(counters.allocated_blocks.current, 1u);
  EXPECT_EQ(counters.allocated_blocks.total, 2u);
  EXPECT_EQ(counters.reserved_bytes.current, 2 * kMiB);
  EXPECT_EQ(counters.reserved_segments.current, 1u);
  EXPECT_EQ(counters.free_bytes, 2 * kMiB - 512);
  EXPECT_EQ(counters.largest_free_block_bytes, 2 * kMiB - 1536);
  EXPECT_EQ(counters.pending_bytes, 0u);
  engine.ResetPeaks();
  EXPECT_EQ(engine.counters().allocated_bytes.peak, 512u);
  EXPECT_EQ(engine.counters().allocated_bytes.total, 1536u);
}

TEST(CachingEngine, ShowsItsBlocksInOrder) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  Serve(engine, 1000, 7);
  const std::vector<BlockView> views = engine.Snapshot();
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].state, COMMPOOL_BLOCK_LIVE);
  EXPECT_EQ(views[0].pointer, reinterpret_cast<void*>(kBase));
  EXPECT_EQ(views[0].bytes, 1024u);
  EXPECT_EQ(views[0].requested_bytes, 1000u);
  EXPECT_EQ(views[0].stream, 7u);
  EXPECT_EQ(views[1].state, COMMPOOL_BLOCK_FREE);
  EXPECT_EQ(views[1].bytes, 2 * kMiB - 1024);
}

TEST(CachingEngine, ShowsWhichStreamUsedFreeMemoryLast) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  GiveBack(engine, Serve(engine, 2 * kMiB, 7));
  Serve(engine, kMiB, 7);
  ASSERT_EQ(engine.Snapshot().size(), 2u);
  EXPECT_EQ(engine.Snapshot()[1].stream, 7u) << "also of what is left of a block";
}

TEST(CachingEngine, FindsTheLiveBlockOfAnAddress) {
  CachingEngine engine({});
  const SegmentIndex segment = engine.AddSegment({kBase, 2 * kMiB});
  Serve(engine, 1000);
  ASSERT_TRUE(engine.Find(kBase + 999).ok());
  EXPECT_EQ(engine.Find(kBase + 999)->pointer, reinterpret_cast<void*>(kBase));
  EXPECT_EQ(engine.Find(kBase + 999)->segment, segment);
  for (const Address address : {kBase - 1, kBase + 1024, kBase + 2 * kMiB, Address{0}}) {
    EXPECT_EQ(engine.Find(address).status().code(), StatusCode::kNotFound);
  }
}

TEST(CachingEngine, GivesSegmentsBackThatAreIdle) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  engine.AddSegment({2 * kBase, 2 * kMiB});
  const Address address = Serve(engine, 1000);
  EXPECT_EQ(engine.WhollyFreeSegments(), (std::vector<SegmentIndex>{1}));
  EXPECT_EQ(engine.RemoveSegment(1).address, 2 * kBase);
  GiveBack(engine, address);
  EXPECT_TRUE(engine.heap().IsWhollyFree(0));
  EXPECT_FALSE(engine.IsIdle(0)) << "the stream may still use the block";
  engine.DeviceIdle(0, engine.Now());
  EXPECT_TRUE(engine.IsIdle(0));
  EXPECT_EQ(engine.RemoveSegment(0).bytes, 2 * kMiB);
  EXPECT_EQ(engine.counters().reserved_bytes.current, 0u);
  EXPECT_EQ(engine.counters().reserved_bytes.peak, 4 * kMiB);
  EXPECT_EQ(engine.counters().reserved_segments.current, 0u);
  EXPECT_FALSE(engine.IsIdle(0));
  EXPECT_FALSE(engine.heap().IsWhollyFree(0));
  CheckInvariants(engine);
}

// Four segments of one block each, touched in an order that differs from their numbers.
TEST(CachingEngine, NamesTheSegmentsThatWereFreedFirst) {
  CachingEngine engine({});
  std::vector<Address> blocks;
  for (uint64_t segment = 0; segment < 4; ++segment) {
    engine.AddSegment({kBase + segment * 32 * kMiB, 32 * kMiB});
    blocks.push_back(Serve(engine, 32 * kMiB));
  }
  for (const size_t segment : {2, 0, 3}) GiveBack(engine, blocks[segment]);
  EXPECT_EQ(engine.LongestUnusedSegments(), (std::vector<SegmentIndex>{2, 0, 3})) << "segment 1 is in use";
  GiveBack(engine, blocks[1]);
  EXPECT_EQ(engine.LongestUnusedSegments(), (std::vector<SegmentIndex>{2, 0, 3, 1}));

  const Address again = Serve(engine, 32 * kMiB);
  EXPECT_EQ(engine.LongestUnusedSegments().size(), 3u);
  GiveBack(engine, again);
  EXPECT_EQ(engine.LongestUnusedSegments().back(), (again - kBase) / (32 * kMiB)) << "it was used last";
}

TEST(CachingEngine, NamesTheFirstOfSegmentsThatNobodyEverUsed) {
  CachingEngine engine({});
  for (uint64_t segment = 0; segment < 4; ++segment) engine.AddSegment({kBase + segment * 4 * kMiB, 2 * kMiB});
  EXPECT_EQ(engine.LongestUnusedSegments(), (std::vector<SegmentIndex>{0, 1, 2, 3}));
}

// Two free neighbours that the stream may take at once, and that stay two blocks, because only one of them has a fence.
void FreeApart(CachingEngine& engine, uint64_t bytes) {
  constexpr StreamKey kOther = 2;
  const Address low = Serve(engine, bytes);
  const Address high = Serve(engine, bytes, kOther);
  ASSERT_TRUE(engine.RecordStream(high, kStream).ok());
  GiveBack(engine, low);
  ASSERT_TRUE(engine.Free(high).ok());
  engine.AttachFence(MissingOf(engine, high, kStream), Fence{11});
  engine.StreamIdle(kOther, engine.Now());
  ASSERT_EQ(engine.Snapshot().size(), 2u);
}

TEST(CachingEngine, LeavesMemoryAsItIsWhereARequestNeedsNoGrowth) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  FreeApart(engine, kMiB);
  EXPECT_EQ(engine.GrowthFor(kMiB, kStream, Reuse::kSameStream)->bytes, 0u);
  EXPECT_EQ(engine.Snapshot().size(), 2u);
}

TEST(CachingEngine, NeedsNoGrowthForSmallBlocksThatFitIntoUnitedOnes) {
  CachingEngine engine({.spaces = Spaces::kApart});
  engine.SetReserved(true);
  engine.AddSegment({kBase, kMiB}, Space::kSmall);
  FreeApart(engine, kMiB / 2);
  EXPECT_EQ(engine.GrowthFor(kMiB, kStream, Reuse::kSameStream)->bytes, 0u);
}

TEST(CachingEngine, CutsFreeSegmentsForAnyRequestThatFits) {
  CachingEngine engine(FixedOptions());
  engine.AddSegment({kBase, kGiB});
  engine.AddSegment({2 * kBase, 64 * kMiB});
  EXPECT_EQ(engine.GrowthFor(16 * kMiB, kStream, Reuse::kSameStream)->bytes, 0u);
  EXPECT_EQ(Serve(engine, 16 * kMiB), 2 * kBase) << "the tightest fit";
  EXPECT_EQ(Serve(engine, 49 * kMiB), kBase);
}

TEST(CachingEngine, NamesTheStreamsThatMayUseFreeMemory) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  const Address freed = Serve(engine, 512, 5);
  Serve(engine, 512, 6);
  EXPECT_TRUE(engine.StreamsOf().empty());
  GiveBack(engine, freed);
  EXPECT_EQ(engine.StreamsOf(), (std::set<StreamKey>{5}));
}

TEST(CachingEngineDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(CachingEngine({.alignment = 512, .granularity = 1000}), "no multiple of the alignment");
}

TEST(CachingEngine, RefusesZeroAndTooManyBytes) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  for (const uint64_t bytes :
       {uint64_t{0}, std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() - kMiB}) {
    const Result<Outcome> outcome = engine.Allocate(bytes, kStream, Reuse::kAnyStream);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(outcome.status().message().find(std::to_string(bytes) + " bytes"), std::string::npos);
  }
  EXPECT_EQ(engine.counters().allocated_blocks.total, 0u);
  CheckInvariants(engine);
}

TEST(CachingEngine, NamesTheLikelyCauseOfAWrongAddress) {
  CachingEngine engine({});
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Serve(engine, 1000);
  const auto message = [&](Address wrong) {
    const Result<Freed> freed = engine.Free(wrong);
    EXPECT_EQ(freed.status().code(), StatusCode::kNotFound);
    EXPECT_EQ(engine.RecordStream(wrong, 2).code(), StatusCode::kNotFound);
    return freed.status().message();
  };
  EXPECT_NE(message(0).find("not from this pool"), std::string::npos);
  EXPECT_NE(message(0xabc).find("0xabc"), std::string::npos);
  EXPECT_NE(message(address + 8).find("inside a live block of 1024 bytes at 0x7f0000000000"), std::string::npos);
  GiveBack(engine, address);
  EXPECT_NE(message(address).find("freed already"), std::string::npos);
  CheckInvariants(engine);
}

TEST(CachingEngine, KeepsItsBooksWhenItMoves) {
  CachingEngine source({});
  source.AddSegment({kBase, 2 * kMiB});
  const Address address = Serve(source, 1000);
  CachingEngine engine = std::move(source);
  CheckInvariants(engine);
  GiveBack(engine, address);
}

TEST(CachingEngineDeathTest, AbortsWhereASegmentInUseIsRemoved) {
  CachingEngine engine({});
  const SegmentIndex segment = engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Serve(engine, 1000);
  EXPECT_DEATH(engine.RemoveSegment(segment), "may still use");
  GiveBack(engine, address);
  EXPECT_DEATH(engine.RemoveSegment(segment), "may still use");
  EXPECT_DEATH(engine.RemoveSegment(5), "unknown");
}

}  // namespace
}  // namespace commpool::internal::engine
