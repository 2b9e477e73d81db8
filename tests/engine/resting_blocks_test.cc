// Large blocks that were just freed serve the next request of their size, exactly where a search would place it.
#include "src/engine/resting_blocks.h"

#include <gtest/gtest.h>

#include <random>

#include "src/base/bytes.h"
#include "src/engine/caching_engine.h"
#include "src/engine/heap.h"
#include "src/engine/symmetric_engine.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr uint64_t kAlignment = 512;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

class RestingBlocksTest : public ::testing::Test {
 protected:
  RestingBlocksTest() { segment_ = heap_.AddSegment({kBase, 256 * kMiB}); }

  Block* Take(uint64_t mib, StreamKey stream = kStream) {
    Block* const block = heap_.Take({mib * kMiB, stream, Reuse::kSameStream, Space::kLarge, kCommonPart, kFit});
    if (block != nullptr) block->uses.clear();
    return block;
  }
  void Free(Block* block, StreamKey stream = kStream) {
    block->uses = {{stream, kNoFence, kNobody}};
    heap_.Close(block, BlockState::kFree);
  }
  size_t resting() const { return static_cast<size_t>(heap_.resting().end() - heap_.resting().begin()); }

  static constexpr Choice kFit = Choice::kFirstFit;
  Heap heap_{kAlignment, MergePolicy::kCompatible, 2};
  SegmentIndex segment_ = 0;
};

TEST_F(RestingBlocksTest, ServeARequestOfTheirSize) {
  Block* const block = Take(8);
  Free(block);
  EXPECT_EQ(block->state, BlockState::kResting);
  EXPECT_EQ(Take(8), block);
  EXPECT_EQ(block->state, BlockState::kLive);
  EXPECT_EQ(resting(), 0u);
}

TEST_F(RestingBlocksTest, AreOneBlockWithTheRestForARequestOfAnotherSize) {
  Free(Take(8));
  Block* const larger = Take(9);
  EXPECT_EQ(AddressOf(*larger), kBase);
  EXPECT_EQ(resting(), 0u);
}

TEST_F(RestingBlocksTest, ServeNoOtherStream) {
  Block* const block = Take(8);
  Free(block);
  Block* const other = Take(8, kOther);
  EXPECT_EQ(other, nullptr) << "all that is free merged with what the first stream used";
  EXPECT_EQ(Take(8), block);
}

TEST_F(RestingBlocksTest, AreNoMoreThanTheHeapWasToldTo) {
  Block* blocks[3] = {Take(8), Take(16), Take(32)};
  for (int index = 2; index >= 0; --index) Free(blocks[index]);
  EXPECT_EQ(resting(), 2u);
  EXPECT_EQ(heap_.LargestFree(), 256 * kMiB);
}

TEST_F(RestingBlocksTest, LeaveTheSegmentWhollyFree) {
  Free(Take(8));
  ASSERT_EQ(resting(), 1u);
  EXPECT_TRUE(heap_.IsWhollyFree(segment_));
  heap_.RemoveSegment(segment_);
  EXPECT_EQ(resting(), 0u);
  EXPECT_EQ(heap_.Find(kBase), nullptr);
}

TEST_F(RestingBlocksTest, DoNotServeWhereASearchWouldFindALowerPlaceByNow) {
  Block* const lower = Take(8);
  Block* const upper = Take(8);
  Take(8);
  Free(lower);
  Free(upper);
  EXPECT_EQ(AddressOf(*Take(8)), kBase);
}

TEST_F(RestingBlocksTest, KeepSmallBlocksAwake) {
  Block* const block = heap_.Take({64 * kKiB, kStream, Reuse::kSameStream});
  Free(block);
  EXPECT_EQ(resting(), 0u);
}

TEST(PlacementHistory, OutdatesWhatWasPlacedAfterAFreedBlockAndNothingElse) {
  PlacementHistory history;
  const Placement first = history.Note();
  const Placement second = history.Note();
  const Placement third = history.Note();
  history.NoteFree(second);
  EXPECT_TRUE(history.IsCurrent(first));
  EXPECT_TRUE(history.IsCurrent(second));
  EXPECT_FALSE(history.IsCurrent(third));
  const Placement fourth = history.Note();
  EXPECT_TRUE(history.IsCurrent(fourth));
  history.NoteOther();
  EXPECT_FALSE(history.IsCurrent(first));
  EXPECT_FALSE(history.IsCurrent(fourth));
  EXPECT_TRUE(history.IsCurrent(history.Note()));
}

// The last free of an older block than the placement, and after it, decides.
TEST(PlacementHistory, NeverCallsAnOutdatedPlacementCurrent) {
  std::mt19937_64 random(3);
  PlacementHistory history;
  std::vector<bool> outdated = {false};
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0) {
      history.Note();
      outdated.push_back(false);
    } else {
      const Placement freed = random() % outdated.size();
      history.NoteFree(freed);
      for (size_t placement = freed + 1; placement < outdated.size(); ++placement) outdated[placement] = true;
    }
    for (size_t placement = 1; placement < outdated.size(); ++placement) {
      ASSERT_FALSE(outdated[placement] && history.IsCurrent(placement)) << "placement " << placement;
    }
    ASSERT_TRUE(outdated.back() || history.IsCurrent(outdated.size() - 1));
  }
}

// Ranks whose programs ask their pools for figures, or whose fences pass, at different moments.
TEST(SymmetricEngine, PlacesEquallyWhateverARankLooksAt) {
  EngineOptions options;
  SymmetricEngine plain(options, FreeOrder::kOrdered);
  SymmetricEngine curious(options, FreeOrder::kOrdered);
  plain.AddSegment({kBase, 512 * kMiB});
  curious.AddSegment({2 * kBase, 512 * kMiB});
  std::mt19937_64 random(5);
  std::vector<Address> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 12 && random() % 2 == 0) {
      const uint64_t bytes = (1 + random() % 6) * 3 * kMiB;
      const Result<Outcome> here = plain.Allocate(bytes, kStream);
      const Result<Outcome> there = curious.Allocate(bytes, step % 3 == 0 ? kOther : kStream);
      ASSERT_EQ(here->index(), there->index());
      if (!std::holds_alternative<Served>(*here)) continue;
      live.push_back(std::get<Served>(*here).address);
      ASSERT_EQ(std::get<Served>(*there).address, live.back() + kBase);
    } else if (!live.empty()) {
      const size_t place = random() % 3 == 0 ? random() % live.size() : live.size() - 1;
      ASSERT_TRUE(plain.Free(live[place]).ok());
      ASSERT_TRUE(curious.Free(live[place] + kBase).ok());
      live.erase(live.begin() + static_cast<long>(place));
    }
    static_cast<void>(curious.counters());
    static_cast<void>(curious.CanServe(20 * kMiB));
    if (step % 7 == 0) curious.DeviceIdle(curious.Now());
    curious.CheckInvariants();
  }
  EXPECT_EQ(plain.log().hash(), curious.log().hash());
}

}  // namespace
}  // namespace commpool::internal::engine
