// A heap cuts segments into blocks, and merges what is free; from which end of a free block it cuts; which block holds
// an address, anywhere inside; and addresses whose memory comes, goes and moves: holes between blocks.
#include "src/library/engine/heap.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr Address kBase = 0x10000000;

using Sizes = std::vector<int64_t>;

class HeapTest : public ::testing::Test {
 protected:
  explicit HeapTest(MergePolicy policy = MergePolicy::kCompatible) : heap_(kAlignment, policy) {}

  Block* Take(uint64_t bytes) { return heap_.Take({bytes, 1, Reuse::kAnyStream}); }
  void GiveBack(Block* block, Uses uses = {}) {
    block->uses = std::move(uses);
    heap_.Close(block, 0);
  }
  // The sizes of a segment's blocks in address order, live ones negative.
  Sizes Shape(SegmentIndex index = 0) const {
    Sizes shape;
    for (const Block* block = heap_.segments().at(index)->first; block != nullptr; block = block->next) {
      const int64_t bytes = static_cast<int64_t>(block->bytes);
      shape.push_back(block->state == BlockState::kFree ? bytes : -bytes);
    }
    return shape;
  }

  Heap heap_;
};

class HeapOfOneSegment : public HeapTest {
 protected:
  HeapOfOneSegment() { heap_.AddSegment({kBase, 4096}); }
};

class AlwaysMergingHeap : public HeapTest {
 protected:
  AlwaysMergingHeap() : HeapTest(MergePolicy::kAlways) {}
};

TEST_F(HeapOfOneSegment, CutsARequestOffTheFrontOfABlock) {
  Block* block = Take(1024);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(AddressOf(*block), kBase);
  EXPECT_EQ(Shape(), (Sizes{-1024, 3072}));
}

TEST_F(HeapOfOneSegment, TakesAnExactFitWhole) {
  ASSERT_NE(Take(4096), nullptr);
  EXPECT_EQ(Shape(), (Sizes{-4096}));
  EXPECT_EQ(Take(512), nullptr);
}

TEST_F(HeapTest, TakesTheBestFitAcrossSegments) {
  heap_.AddSegment({kBase, 8192});
  heap_.AddSegment({2 * kBase, 2048});
  EXPECT_EQ(AddressOf(*Take(1024)), 2 * kBase);
  EXPECT_EQ(AddressOf(*Take(2048)), kBase);
}

TEST_F(HeapOfOneSegment, MergesAFreedBlockWithBothNeighbours) {
  Block* low = Take(1024);
  Block* middle = Take(1024);
  GiveBack(low);
  EXPECT_EQ(Shape(), (Sizes{1024, -1024, 2048}));
  GiveBack(middle);
  EXPECT_EQ(Shape(), (Sizes{4096}));
  EXPECT_TRUE(heap_.IsWhollyFree(0));
}

TEST_F(AlwaysMergingHeap, NeverMergesAcrossSegmentsThatTouch) {
  heap_.AddSegment({kBase, 4096});
  heap_.AddSegment({kBase + 4096, 4096});
  EXPECT_EQ(Take(8192), nullptr);
  EXPECT_EQ(heap_.WhollyFreeSegments(), (std::vector<SegmentIndex>{0, 1}));
}

TEST_F(HeapTest, KeepsNeighboursApartThatDifferentStreamsUsed) {
  heap_.AddSegment({kBase, 2048});
  Block* low = Take(1024);
  Block* high = Take(1024);
  GiveBack(low, {{1, kNoFence, kNoMoment}});
  GiveBack(high, {{2, kNoFence, kNoMoment}});
  EXPECT_EQ(Shape(), (Sizes{1024, 1024}));
  heap_.ChangeUses(heap_.Find(kBase + 1024), [](Uses& uses) { uses.clear(); });
  EXPECT_EQ(Shape(), (Sizes{2048})) << "nobody uses the upper one any more";
  EXPECT_EQ(heap_.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}}));
}

TEST_F(AlwaysMergingHeap, UnitesUsesWhereItAlwaysMerges) {
  heap_.AddSegment({kBase, 2048});
  Block* low = Take(1024);
  Block* high = Take(1024);
  GiveBack(low, {{2, kNoFence, kNoMoment}});
  GiveBack(high, {{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}});
  EXPECT_EQ(Shape(), (Sizes{2048}));
  EXPECT_EQ(heap_.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}}));
}

TEST_F(HeapTest, LeavesUsesOnBothPartsOfASplit) {
  heap_.AddSegment({kBase, 2048});
  const Uses uses = {{3, kNoFence, kNoMoment}};
  GiveBack(Take(2048), uses);
  EXPECT_EQ(Take(512)->uses, uses);
  EXPECT_EQ(heap_.Find(kBase + 512)->uses, uses);
}

TEST_F(AlwaysMergingHeap, KeepsClosedBlocksOutOfTheFreeMemory) {
  heap_.AddSegment({kBase, 1024});
  Block* block = Take(512);
  heap_.Close(block, ReasonsOf(Reason::kRanks));
  EXPECT_EQ(heap_.pending_bytes(), 512u);
  EXPECT_FALSE(heap_.IsWhollyFree(0));
  EXPECT_EQ(Take(1024), nullptr);
  heap_.EndReason(block, Reason::kRanks);
  EXPECT_EQ(heap_.pending_bytes(), 0u);
  EXPECT_NE(Take(1024), nullptr);
}

TEST_F(AlwaysMergingHeap, OpensAClosedBlockWithTheLastReason) {
  heap_.AddSegment({kBase, 1536});
  Block* const blocks[] = {Take(512), Take(512), Take(512)};
  for (Block* const block : blocks) heap_.Close(block, ReasonsOf(Reason::kImporters) | ReasonsOf(Reason::kRanks));
  EXPECT_EQ(heap_.closed().size(), 3u);
  for (Block* const block : {blocks[1], blocks[0], blocks[2]}) {
    heap_.EndReason(block, Reason::kRanks);
    EXPECT_EQ(block->state, BlockState::kClosed);
    EXPECT_DEATH(heap_.EndReason(block, Reason::kRanks), "closes no block");
  }
  for (Block* const block : {blocks[1], blocks[0], blocks[2]}) heap_.EndReason(block, Reason::kImporters);
  EXPECT_TRUE(heap_.closed().empty());
  EXPECT_NE(Take(1536), nullptr);
}

TEST_F(HeapOfOneSegment, FindsBlocksByAnyAddressInside) {
  Block* block = Take(1024);
  EXPECT_EQ(heap_.Find(kBase + 1023), block);
  EXPECT_EQ(heap_.Find(kBase + 1024), block->next);
  EXPECT_EQ(heap_.Find(kBase - 1), nullptr);
  EXPECT_EQ(heap_.Find(kBase + 4096), nullptr);
}

TEST_F(HeapTest, NumbersSegmentsInOrderAndNeverAgain) {
  EXPECT_EQ(heap_.AddSegment({kBase, 4096}), 0u);
  EXPECT_EQ(heap_.AddSegment({2 * kBase, 4096}), 1u);
  const SegmentRange removed = heap_.RemoveSegment(0);
  EXPECT_EQ(removed.address, kBase);
  EXPECT_EQ(removed.bytes, 4096u);
  EXPECT_EQ(heap_.Find(kBase), nullptr);
  EXPECT_EQ(heap_.AddSegment({kBase, 4096}), 2u);
  EXPECT_EQ(heap_.segments_ever(), 3u);
}

TEST_F(HeapOfOneSegment, RecyclesTheRecordsOfItsBlocks) {
  const Block* const whole = heap_.Find(kBase);
  Block* const block = Take(1024);
  const Block* const rest = block->next;
  GiveBack(block);
  EXPECT_EQ(Take(512)->next, rest) << "after a merge";
  GiveBack(heap_.Find(kBase));
  heap_.RemoveSegment(0);
  heap_.AddSegment({kBase, 4096});
  EXPECT_EQ(heap_.Find(kBase), whole) << "after the segment went";
}

TEST_F(HeapTest, JoinsAllFreeNeighboursOfASpaceAndOfTheCommonPart) {
  heap_.AddSegment({kBase, 4096});
  heap_.AddSegment({2 * kBase, 8192}, Space::kSmall);
  Block* const blocks[] = {Take(1024), Take(1024), heap_.Take({.bytes = 2048, .part = 7}),
                           heap_.Take({.bytes = 4096, .space = Space::kSmall}),
                           heap_.Take({.bytes = 4096, .space = Space::kSmall})};
  for (StreamKey stream = 1; Block* const block : blocks) {
    GiveBack(block, {{stream, kNoFence, kNoMoment}});
    stream += stream == 3 ? 5 : 1;  // all promised
  }
  EXPECT_EQ(heap_.LargestUnited(Space::kLarge), 2048u) << "the graph's is no part of it, nor is the other space";
  EXPECT_EQ(heap_.LargestUnited(Space::kSmall), 8192u);
  heap_.UnifyAll(Space::kLarge);
  EXPECT_EQ(Shape(), (Sizes{2048, 2048}));
  EXPECT_EQ(heap_.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}}));
  EXPECT_EQ(Shape(1), (Sizes{4096, 4096}));
}

TEST_F(HeapOfOneSegment, KeepsItsBlocksWhenItMoves) {
  Block* block = Take(1024);
  Heap moved = std::move(heap_);
  EXPECT_EQ(moved.Find(kBase), block);
  moved.Close(block, 0);
  EXPECT_NE(moved.Take({.bytes = 4096}), nullptr);
}

using HeapDeathTest = HeapTest;

TEST_F(HeapDeathTest, AbortsOnBrokenRequirements) {
  EXPECT_DEATH(Heap(48, MergePolicy::kCompatible), "power of two");
  EXPECT_DEATH(heap_.AddSegment({kBase + 1, 4096}), "alignment");
  EXPECT_DEATH(heap_.AddSegment({kBase, 1000}), "alignment");
  heap_.AddSegment({kBase, 4096});
  EXPECT_DEATH(Take(0), "not rounded up");
  EXPECT_DEATH(Take(100), "not rounded up");
  Block* block = Take(512);
  EXPECT_DEATH(heap_.RemoveSegment(0), "blocks in use");
  EXPECT_DEATH(heap_.RemoveSegment(9), "unknown");
  EXPECT_DEATH(heap_.EndReason(block, Reason::kRanks), "closes no block");
  GiveBack(block);
  EXPECT_DEATH(heap_.Close(heap_.Find(kBase), 0), "not live");
}

TEST(Heap, FindsWhatLiesInsideABlock) {
  for (const Space space : {Space::kSmall, Space::kLarge}) {
    Heap heap(kAlignment, MergePolicy::kCompatible);
    heap.AddSegment({kBase, 8192}, space);
    for (uint64_t place = 0; place < 4; ++place) heap.Take({.bytes = 1024, .space = space});
    for (uint64_t place = 0; place < 4; ++place) {
      Block* const block = heap.FindStart(kBase + 1024 * place);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(heap.Find(kBase + 1024 * place), block);
      EXPECT_EQ(heap.Find(kBase + 1024 * place + 1023), block);
    }
    EXPECT_EQ(heap.Find(kBase + 8191), heap.FindStart(kBase + 4096));
    EXPECT_EQ(heap.Find(kBase + 8192), nullptr);
  }
}

// A freed block merges with its lower neighbour first, which decides whether the upper one merges too.
TEST_F(HeapTest, MergesTheLowerNeighbourBeforeTheUpperWhereUsesAreCompatible) {
  heap_.AddSegment({kBase, 3 * 1024});
  Block* const lower = Take(1024);
  Block* const middle = Take(1024);
  Block* const upper = Take(1024);
  GiveBack(lower, {{1, kNoFence, kNoMoment}});
  GiveBack(upper, {{2, kNoFence, kNoMoment}});
  GiveBack(middle);
  EXPECT_EQ(heap_.Find(kBase)->bytes, 2048u) << "the lower one's stream has both";
  EXPECT_EQ(heap_.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}}));
  EXPECT_EQ(heap_.Find(kBase + 2048)->bytes, 1024u);
}

// A free block in a segment of 1 GiB, between two blocks; no bytes is the segment's end.
class Gap {
 public:
  Gap(uint64_t below, uint64_t above) {
    segment_.range = {kGiB, kGiB};
    free_.segment = &segment_;
    free_.bytes = 512 * kMiB;
    below_.bytes = below;
    above_.bytes = above;
    if (below > 0) free_.previous = &below_;
    if (above > 0) free_.next = &above_;
  }
  Gap(const Gap&) = delete;
  Gap& operator=(const Gap&) = delete;

  CutSide For(uint64_t bytes) const { return CutSideFor(bytes, free_); }

 private:
  HeapSegment segment_;
  Block below_;
  Block above_;
  Block free_;
};

TEST(CutSide, LiesBesideABlockOfItsSize) {
  EXPECT_EQ(Gap(64 * kMiB, 8 * kMiB).For(64 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(64 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(90 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(43 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(300 * kMiB, 0).For(300 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(0, 4096).For(4096), CutSide::kHigh);
}

TEST(CutSide, KeepsAwayFromBlocksOfAboutTwiceOrHalfTheSize) {
  EXPECT_EQ(Gap(64 * kMiB, 0).For(128 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(32 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(0, 64 * kMiB).For(32 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(128 * kMiB, 128 * kMiB + 512).For(256 * kMiB), CutSide::kLow) << "neither end, so by size";
}

TEST(CutSide, DependsOnTheSizeWhereNeitherNeighbourDecides) {
  EXPECT_EQ(Gap(64 * kMiB, 0).For(512), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(kMiB + 512), CutSide::kHigh);
  EXPECT_EQ(Gap(512, 0).For(170 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(512, 0).For(171 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 64 * kMiB).For(64 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(500 * kMiB, 0).For(64 * kMiB), CutSide::kHigh);
}

TEST(CutSide, PutsTheFirstBlockOfASegmentAtItsBeginning) {
  EXPECT_EQ(Gap(0, 0).For(512), CutSide::kLow);
  EXPECT_EQ(Gap(0, 0).For(64 * kMiB), CutSide::kLow);
}

class HeapAddresses : public ::testing::Test {
 protected:
  // The number of the segment; -1 where none holds the address.
  int SegmentAt(Address address) const {
    const Block* const block = heap_.Find(address);
    return block == nullptr ? -1 : static_cast<int>(block->segment->index);
  }

  Heap heap_{1, MergePolicy::kCompatible};
};

using HeapAddressesDeathTest = HeapAddresses;

TEST_F(HeapAddresses, FindTheSegmentThatHoldsThem) {
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0x1000), 0);
  EXPECT_EQ(SegmentAt(0x1801), 0);
  EXPECT_EQ(SegmentAt(0x1fff), 0);
}

TEST_F(HeapAddresses, FindNothingOutside) {
  EXPECT_EQ(SegmentAt(0), -1);
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0), -1);
  EXPECT_EQ(SegmentAt(0xfff), -1);
  EXPECT_EQ(SegmentAt(0x2000), -1);
  EXPECT_EQ(SegmentAt(UINT64_MAX), -1);
}

TEST_F(HeapAddresses, TellAdjacentSegmentsApart) {
  heap_.AddSegment({0x2000, 0x1000});
  heap_.AddSegment({0x1000, 0x1000});
  EXPECT_EQ(SegmentAt(0x1fff), 1);
  EXPECT_EQ(SegmentAt(0x2000), 0);
  heap_.RemoveSegment(1);
  EXPECT_EQ(SegmentAt(0x1fff), -1);
  EXPECT_EQ(SegmentAt(0x2000), 0);
}

TEST_F(HeapAddresses, ReachTheVeryTopOfTheAddressSpace) {
  heap_.AddSegment({UINT64_MAX - 0xfff, 0x1000});
  EXPECT_EQ(SegmentAt(UINT64_MAX), 0);
}

// The search goes from the segment's begin and from the address at once: either end may be nearer.
TEST_F(HeapAddresses, FindTheBlockThatHoldsThemThroughRandomChanges) {
  Heap heap(512, MergePolicy::kCompatible);
  heap.AddSegment({0x100000, 0x100000});
  std::mt19937_64 random(7);
  std::vector<Block*> live;
  for (int step = 0; step < 4000; ++step) {
    const uint64_t bytes = 512 * (1 + (random() % 8 == 0 ? random() % 400 : random() % 4));
    Block* const taken = live.size() < 300 ? heap.Take({.bytes = bytes}) : nullptr;
    if (taken != nullptr) {
      live.push_back(taken);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      heap.Close(live.back(), 0);
      live.pop_back();
    }
    const Address address = 0x100000 + random() % 0x100000;
    const Block* holder = heap.segments().at(0)->first;
    while (AddressOf(*holder) + holder->bytes <= address) holder = holder->next;
    ASSERT_EQ(heap.Find(address), holder);
  }
}

TEST_F(HeapAddressesDeathTest, AreOfOneSegmentAndDoNotWrapAround) {
  heap_.AddSegment({0x2000, 0x1000});
  EXPECT_DEATH(heap_.AddSegment({0x2000, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x2fff, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x1001, 0x1000}), "overlap");
  EXPECT_DEATH(heap_.AddSegment({0x4000, 0}), "empty");
  EXPECT_DEATH(heap_.AddSegment({UINT64_MAX, 2}), "wraps around");
  EXPECT_DEATH(heap_.RemoveSegment(1), "unknown");
}

constexpr uint64_t kPage = 4096;

class HeapPages : public HeapTest {
 protected:
  HeapPages() { heap_.AddSegment({kBase, 8 * kPage}, Space::kLarge, BlockState::kUnmapped); }

  void Convert(uint64_t page, BlockState from, BlockState to, uint64_t count = 1) {
    heap_.Convert({kBase + page * kPage, count * kPage}, from, to);
  }
  void Map(uint64_t page, uint64_t count = 1) { Convert(page, BlockState::kUnmapped, BlockState::kFree, count); }

  // A territory's blocks in address order: F(ree), U(nmapped), A(rriving), L(eaving), else X, and the pages of each.
  static constexpr char kLetters[] = "XFXUAL";  // of the states, in the order of BlockState
  std::string Shape() const {
    std::string shape;
    for (const Block* block = heap_.segments().at(0)->first; block != nullptr; block = block->next) {
      shape += kLetters[static_cast<size_t>(block->state)] + std::to_string(block->bytes / kPage) + " ";
    }
    return shape;
  }
};

TEST_F(HeapPages, ServesNothingFromAddressesWithoutMemory) {
  EXPECT_EQ(Shape(), "U8 ");
  EXPECT_EQ(Take(512), nullptr);
  EXPECT_TRUE(heap_.IsWhollyFree(0));
}

TEST_F(HeapPages, ServesFromPagesThatCame) {
  Map(2, 2);
  EXPECT_EQ(Shape(), "U2 F2 U4 ");
  Block* block = Take(2 * kPage);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(AddressOf(*block), kBase + 2 * kPage);
  EXPECT_FALSE(heap_.IsWhollyFree(0));
}

TEST_F(HeapPages, MergesPagesThatLieSideBySide) {
  Map(2);
  Map(4);
  EXPECT_EQ(Shape(), "U2 F1 U1 F1 U3 ");
  Map(3);
  EXPECT_EQ(Shape(), "U2 F3 U3 ");
  EXPECT_NE(Take(3 * kPage), nullptr);
}

TEST_F(HeapPages, MergesAHoleWithItsNeighbours) {
  Map(0, 3);
  Convert(1, BlockState::kFree, BlockState::kLeaving);
  EXPECT_EQ(Shape(), "F1 L1 F1 U5 ");
  Convert(1, BlockState::kLeaving, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U1 F1 U5 ");
  Convert(2, BlockState::kFree, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U7 ");
}

TEST_F(HeapPages, ServesNobodyFromClaimedPagesAndAddresses) {
  Map(0, 2);
  Convert(1, BlockState::kFree, BlockState::kLeaving);
  Convert(4, BlockState::kUnmapped, BlockState::kArriving);
  EXPECT_EQ(Shape(), "F1 L1 U2 A1 U3 ");
  EXPECT_EQ(Take(2 * kPage), nullptr);
  EXPECT_EQ(heap_.pending_bytes(), kPage);
  EXPECT_FALSE(heap_.IsWhollyFree(0)) << "a growth is at it";
}

TEST_F(HeapPages, KeepsClaimedPagesApart) {
  Map(0, 2);
  Convert(0, BlockState::kFree, BlockState::kLeaving);
  Convert(1, BlockState::kFree, BlockState::kLeaving);
  EXPECT_EQ(Shape(), "L1 L1 U6 ");
  Convert(0, BlockState::kLeaving, BlockState::kFree);
  Convert(1, BlockState::kLeaving, BlockState::kFree);
  EXPECT_EQ(Shape(), "F2 U6 ");
}

TEST_F(HeapPages, GivesAnIdlePageToTheStreamThatUsedItsNeighbour) {
  Map(0, 1);
  Block* block = Take(kPage);
  block->uses = {{3, kNoFence, kNoMoment}};
  heap_.Close(block, 0);
  Map(1);
  EXPECT_EQ(Shape(), "F2 U6 ");
  EXPECT_EQ(heap_.Find(kBase + kPage)->uses, (Uses{{3, kNoFence, kNoMoment}}));
}

TEST_F(HeapPages, KeepsUsesOfMemoryThatAPageLeavesBehind) {
  Map(0, 2);
  Block* lower = Take(kPage);
  Block* upper = Take(kPage);
  lower->uses = {{3, kNoFence, kNoMoment}};
  heap_.Close(lower, 0);
  heap_.Close(upper, 0);
  EXPECT_EQ(Shape(), "F2 U6 ");
  heap_.ChangeUses(heap_.Find(kBase), [](Uses& uses) { uses.clear(); });
  Convert(1, BlockState::kFree, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U7 ");
  EXPECT_NE(Take(kPage), nullptr);
}

using HeapPagesDeathTest = HeapPages;

TEST_F(HeapPagesDeathTest, AbortsWhereMemoryIsInAnotherState) {
  Map(0, 2);
  EXPECT_DEATH(Convert(0, BlockState::kUnmapped, BlockState::kFree), "has another");
  EXPECT_DEATH(Convert(1, BlockState::kFree, BlockState::kLeaving, 2), "no one block");
  EXPECT_DEATH(Convert(8, BlockState::kUnmapped, BlockState::kFree), "has another");
  Take(512);
  EXPECT_DEATH(Convert(0, BlockState::kFree, BlockState::kLeaving), "has another");
}

}  // namespace
}  // namespace commpool::internal::engine
