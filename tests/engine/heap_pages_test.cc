// Addresses whose memory comes, goes and moves: holes between a heap's blocks.
#include <gtest/gtest.h>

#include <string>

#include "src/library/engine/heap.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr uint64_t kPage = 4096;
constexpr Address kBase = 0x10000000;

class HeapPages : public ::testing::Test {
 protected:
  HeapPages() { territory_ = heap_.AddSegment({kBase, 8 * kPage}, Space::kLarge, BlockState::kUnmapped); }

  static SegmentRange PageAt(uint64_t page, uint64_t count = 1) { return {kBase + page * kPage, count * kPage}; }
  void Map(uint64_t page, uint64_t count = 1) {
    heap_.Convert(PageAt(page, count), BlockState::kUnmapped, BlockState::kFree);
  }
  Block* Take(uint64_t bytes) { return heap_.Take({bytes, 1, Reuse::kAnyStream}); }

  // Letters for a territory's blocks in address order: U(nmapped), A(rriving), F(ree), L(eaving), else X.
  std::string Shape() const {
    std::string shape;
    for (const Block* block = heap_.segments().at(territory_)->first; block != nullptr; block = block->next) {
      const char letter = block->state == BlockState::kUnmapped   ? 'U'
                          : block->state == BlockState::kArriving ? 'A'
                          : block->state == BlockState::kFree     ? 'F'
                          : block->state == BlockState::kLeaving  ? 'L'
                                                                  : 'X';
      shape += letter + std::to_string(block->bytes / kPage) + " ";
    }
    return shape;
  }

  Heap heap_{kAlignment, MergePolicy::kCompatible};
  SegmentIndex territory_ = 0;
};

TEST_F(HeapPages, ServesNothingFromAddressesWithoutMemory) {
  EXPECT_EQ(Shape(), "U8 ");
  EXPECT_EQ(Take(512), nullptr);
  EXPECT_TRUE(heap_.IsWhollyFree(territory_));
}

TEST_F(HeapPages, ServesFromPagesThatCame) {
  Map(2, 2);
  EXPECT_EQ(Shape(), "U2 F2 U4 ");
  Block* block = Take(2 * kPage);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(AddressOf(*block), kBase + 2 * kPage);
  EXPECT_FALSE(heap_.IsWhollyFree(territory_));
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
  heap_.Convert(PageAt(1), BlockState::kFree, BlockState::kLeaving);
  EXPECT_EQ(Shape(), "F1 L1 F1 U5 ");
  heap_.Convert(PageAt(1), BlockState::kLeaving, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U1 F1 U5 ");
  heap_.Convert(PageAt(2), BlockState::kFree, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U7 ");
}

TEST_F(HeapPages, ServesNobodyFromClaimedPagesAndAddresses) {
  Map(0, 2);
  heap_.Convert(PageAt(1), BlockState::kFree, BlockState::kLeaving);
  heap_.Convert(PageAt(4), BlockState::kUnmapped, BlockState::kArriving);
  EXPECT_EQ(Shape(), "F1 L1 U2 A1 U3 ");
  EXPECT_EQ(Take(2 * kPage), nullptr);
  EXPECT_EQ(heap_.pending_bytes(), kPage);
  EXPECT_FALSE(heap_.IsWhollyFree(territory_)) << "a growth is at it";
}

TEST_F(HeapPages, KeepsClaimedPagesApart) {
  Map(0, 2);
  heap_.Convert(PageAt(0), BlockState::kFree, BlockState::kLeaving);
  heap_.Convert(PageAt(1), BlockState::kFree, BlockState::kLeaving);
  EXPECT_EQ(Shape(), "L1 L1 U6 ");
  heap_.Convert(PageAt(0), BlockState::kLeaving, BlockState::kFree);
  heap_.Convert(PageAt(1), BlockState::kLeaving, BlockState::kFree);
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
  heap_.Convert(PageAt(1), BlockState::kFree, BlockState::kUnmapped);
  EXPECT_EQ(Shape(), "F1 U7 ");
  EXPECT_NE(Take(kPage), nullptr);
}

using HeapPagesDeathTest = HeapPages;

TEST_F(HeapPagesDeathTest, AbortsWhereMemoryIsInAnotherState) {
  Map(0, 2);
  EXPECT_DEATH(heap_.Convert(PageAt(0), BlockState::kUnmapped, BlockState::kFree), "has another");
  EXPECT_DEATH(heap_.Convert(PageAt(1, 2), BlockState::kFree, BlockState::kLeaving), "no one block");
  EXPECT_DEATH(heap_.Convert(PageAt(8), BlockState::kUnmapped, BlockState::kFree), "has another");
  Take(512);
  EXPECT_DEATH(heap_.Convert(PageAt(0), BlockState::kFree, BlockState::kLeaving), "has another");
}

}  // namespace
}  // namespace commpool::internal::engine
