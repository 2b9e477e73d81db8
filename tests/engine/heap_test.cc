#include "src/library/engine/heap.h"

#include <gtest/gtest.h>

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr Address kBase = 0x10000000;

Block* Take(Heap& heap, uint64_t bytes) { return heap.Take({bytes, 1, Reuse::kAnyStream}); }

void GiveBack(Heap& heap, Block* block, Uses uses = {}) {
  block->uses = std::move(uses);
  heap.Close(block, 0);
}

// The sizes of a segment's blocks in address order, live ones negative.
std::vector<int64_t> Shape(const Heap& heap, SegmentIndex index) {
  std::vector<int64_t> shape;
  for (const Block* block = heap.segments().at(index)->first; block != nullptr; block = block->next) {
    const int64_t bytes = static_cast<int64_t>(block->bytes);
    shape.push_back(block->state == BlockState::kFree ? bytes : -bytes);
  }
  return shape;
}

TEST(Heap, CutsARequestOffTheFrontOfABlock) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const SegmentIndex segment = heap.AddSegment({kBase, 4096});
  Block* block = Take(heap, 1024);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(AddressOf(*block), kBase);
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{-1024, 3072}));
}

TEST(Heap, TakesAnExactFitWhole) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const SegmentIndex segment = heap.AddSegment({kBase, 4096});
  ASSERT_NE(Take(heap, 4096), nullptr);
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{-4096}));
  EXPECT_EQ(Take(heap, 512), nullptr);
}

TEST(Heap, TakesTheBestFitAcrossSegments) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  heap.AddSegment({kBase, 8192});
  heap.AddSegment({2 * kBase, 2048});
  EXPECT_EQ(AddressOf(*Take(heap, 1024)), 2 * kBase);
  EXPECT_EQ(AddressOf(*Take(heap, 2048)), kBase);
}

TEST(Heap, MergesAFreedBlockWithBothNeighbours) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const SegmentIndex segment = heap.AddSegment({kBase, 4096});
  Block* low = Take(heap, 1024);
  Block* middle = Take(heap, 1024);
  GiveBack(heap, low);
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{1024, -1024, 2048}));
  GiveBack(heap, middle);
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{4096}));
  EXPECT_TRUE(heap.IsWhollyFree(segment));
}

TEST(Heap, NeverMergesAcrossSegmentsThatTouch) {
  Heap heap(kAlignment, MergePolicy::kAlways);
  heap.AddSegment({kBase, 4096});
  heap.AddSegment({kBase + 4096, 4096});
  EXPECT_EQ(Take(heap, 8192), nullptr);
  EXPECT_EQ(heap.WhollyFreeSegments(), (std::vector<SegmentIndex>{0, 1}));
}

TEST(Heap, KeepsNeighboursApartThatDifferentStreamsUsed) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const SegmentIndex segment = heap.AddSegment({kBase, 2048});
  Block* low = Take(heap, 1024);
  Block* high = Take(heap, 1024);
  GiveBack(heap, low, {{1, kNoFence, kNoMoment}});
  GiveBack(heap, high, {{2, kNoFence, kNoMoment}});
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{1024, 1024}));
  heap.ChangeUses(heap.Find(kBase + 1024), [](Uses& uses) { uses.clear(); });
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{2048})) << "nobody uses the upper one any more";
  EXPECT_EQ(heap.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}}));
}

TEST(Heap, UnitesUsesWhereItAlwaysMerges) {
  Heap heap(kAlignment, MergePolicy::kAlways);
  const SegmentIndex segment = heap.AddSegment({kBase, 2048});
  Block* low = Take(heap, 1024);
  Block* high = Take(heap, 1024);
  GiveBack(heap, low, {{2, kNoFence, kNoMoment}});
  GiveBack(heap, high, {{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}});
  EXPECT_EQ(Shape(heap, segment), (std::vector<int64_t>{2048}));
  const Uses both = {{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}};
  EXPECT_EQ(heap.Find(kBase)->uses, both);
}

TEST(Heap, LeavesUsesOnBothPartsOfASplit) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  heap.AddSegment({kBase, 2048});
  GiveBack(heap, Take(heap, 2048), {{3, kNoFence, kNoMoment}});
  const Uses uses = {{3, kNoFence, kNoMoment}};
  EXPECT_EQ(Take(heap, 512)->uses, uses);
  EXPECT_EQ(heap.Find(kBase + 512)->uses, uses);
}

TEST(Heap, KeepsClosedBlocksOutOfTheFreeMemory) {
  Heap heap(kAlignment, MergePolicy::kAlways);
  const SegmentIndex segment = heap.AddSegment({kBase, 1024});
  Block* block = Take(heap, 512);
  heap.Close(block, ReasonsOf(Reason::kRanks));
  EXPECT_EQ(heap.pending_bytes(), 512u);
  EXPECT_FALSE(heap.IsWhollyFree(segment));
  EXPECT_EQ(Take(heap, 1024), nullptr);
  heap.EndReason(block, Reason::kRanks);
  EXPECT_EQ(heap.pending_bytes(), 0u);
  EXPECT_NE(Take(heap, 1024), nullptr);
}

TEST(Heap, OpensAClosedBlockWithTheLastReason) {
  Heap heap(kAlignment, MergePolicy::kAlways);
  heap.AddSegment({kBase, 1536});
  Block* const blocks[] = {Take(heap, 512), Take(heap, 512), Take(heap, 512)};
  for (Block* const block : blocks) {
    heap.Close(block, ReasonsOf(Reason::kImporters) | ReasonsOf(Reason::kRanks));
  }
  EXPECT_EQ(heap.closed().size(), 3u);
  for (Block* const block : {blocks[1], blocks[0], blocks[2]}) {
    heap.EndReason(block, Reason::kRanks);
    EXPECT_EQ(block->state, BlockState::kClosed);
    EXPECT_DEATH(heap.EndReason(block, Reason::kRanks), "closes no block");
  }
  for (Block* const block : {blocks[1], blocks[0], blocks[2]}) heap.EndReason(block, Reason::kImporters);
  EXPECT_TRUE(heap.closed().empty());
  EXPECT_NE(Take(heap, 1536), nullptr);
}

TEST(Heap, FindsBlocksByAnyAddressInside) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  heap.AddSegment({kBase, 4096});
  Block* block = Take(heap, 1024);
  EXPECT_EQ(heap.Find(kBase + 1023), block);
  EXPECT_EQ(heap.Find(kBase + 1024), block->next);
  EXPECT_EQ(heap.Find(kBase - 1), nullptr);
  EXPECT_EQ(heap.Find(kBase + 4096), nullptr);
}

TEST(Heap, NumbersSegmentsInOrderAndNeverAgain) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  EXPECT_EQ(heap.AddSegment({kBase, 4096}), 0u);
  EXPECT_EQ(heap.AddSegment({2 * kBase, 4096}), 1u);
  const SegmentRange removed = heap.RemoveSegment(0);
  EXPECT_EQ(removed.address, kBase);
  EXPECT_EQ(removed.bytes, 4096u);
  EXPECT_EQ(heap.Find(kBase), nullptr);
  EXPECT_EQ(heap.AddSegment({kBase, 4096}), 2u);
  EXPECT_EQ(heap.segments_ever(), 3u);
}

TEST(Heap, RecyclesTheRecordsOfItsBlocks) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const SegmentIndex segment = heap.AddSegment({kBase, 4096});
  const Block* const whole = heap.Find(kBase);
  Block* const block = Take(heap, 1024);
  const Block* const rest = block->next;
  GiveBack(heap, block);
  EXPECT_EQ(Take(heap, 512)->next, rest) << "after a merge";
  GiveBack(heap, heap.Find(kBase));
  heap.RemoveSegment(segment);
  heap.AddSegment({kBase, 4096});
  EXPECT_EQ(heap.Find(kBase), whole) << "after the segment went";
}

TEST(Heap, JoinsAllFreeNeighboursOfASpaceAndOfTheCommonPart) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  const Part graph = 7;
  heap.AddSegment({kBase, 4096});
  heap.AddSegment({2 * kBase, 8192}, Space::kSmall);
  const auto take = [&](uint64_t bytes, Space space, Part part) {
    return heap.Take({bytes, 1, Reuse::kAnyStream, space, part});
  };
  Block* const blocks[] = {take(1024, Space::kLarge, kCommonPart), take(1024, Space::kLarge, kCommonPart),
                           take(2048, Space::kLarge, graph), take(4096, Space::kSmall, kCommonPart),
                           take(4096, Space::kSmall, kCommonPart)};
  for (StreamKey stream = 1; Block* const block : blocks) {
    GiveBack(heap, block, {{stream, kNoFence, kNoMoment}});
    stream += stream == 3 ? 5 : 1;  // all promised
  }
  EXPECT_EQ(heap.LargestUnited(Space::kLarge), 2048u) << "the graph's is no part of it, nor is the other space";
  EXPECT_EQ(heap.LargestUnited(Space::kSmall), 8192u);
  heap.UnifyAll(Space::kLarge);
  EXPECT_EQ(Shape(heap, 0), (std::vector<int64_t>{2048, 2048}));
  EXPECT_EQ(heap.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}, {2, kNoFence, kNoMoment}}));
  EXPECT_EQ(Shape(heap, 1), (std::vector<int64_t>{4096, 4096}));
}

TEST(Heap, KeepsItsBlocksWhenItMoves) {
  Heap source(kAlignment, MergePolicy::kCompatible);
  source.AddSegment({kBase, 4096});
  Block* block = Take(source, 1024);
  Heap heap = std::move(source);
  EXPECT_EQ(heap.Find(kBase), block);
  GiveBack(heap, block);
  EXPECT_NE(Take(heap, 4096), nullptr);
}

TEST(HeapDeathTest, AbortsOnBrokenRequirements) {
  EXPECT_DEATH(Heap(48, MergePolicy::kCompatible), "power of two");
  Heap heap(kAlignment, MergePolicy::kCompatible);
  EXPECT_DEATH(heap.AddSegment({kBase + 1, 4096}), "alignment");
  EXPECT_DEATH(heap.AddSegment({kBase, 1000}), "alignment");
  const SegmentIndex segment = heap.AddSegment({kBase, 4096});
  EXPECT_DEATH(Take(heap, 0), "not rounded up");
  EXPECT_DEATH(Take(heap, 100), "not rounded up");
  Block* block = Take(heap, 512);
  EXPECT_DEATH(heap.RemoveSegment(segment), "blocks in use");
  EXPECT_DEATH(heap.RemoveSegment(9), "unknown");
  EXPECT_DEATH(heap.EndReason(block, Reason::kRanks), "closes no block");
  GiveBack(heap, block);
  EXPECT_DEATH(heap.Close(heap.Find(kBase), 0), "not live");
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
TEST(Heap, MergesTheLowerNeighbourBeforeTheUpperWhereUsesAreCompatible) {
  Heap heap(kAlignment, MergePolicy::kCompatible);
  heap.AddSegment({kBase, 3 * 1024});
  Block* const lower = heap.Take({.bytes = 1024});
  Block* const middle = heap.Take({.bytes = 1024});
  Block* const upper = heap.Take({.bytes = 1024});
  GiveBack(heap, lower, {{1, kNoFence, kNoMoment}});
  GiveBack(heap, upper, {{2, kNoFence, kNoMoment}});
  GiveBack(heap, middle);
  EXPECT_EQ(heap.Find(kBase)->bytes, 2048u) << "the lower one's stream has both";
  EXPECT_EQ(heap.Find(kBase)->uses, Uses({{1, kNoFence, kNoMoment}}));
  EXPECT_EQ(heap.Find(kBase + 2048)->bytes, 1024u);
}

}  // namespace
}  // namespace commpool::internal::engine
