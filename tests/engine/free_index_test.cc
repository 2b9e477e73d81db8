#include "src/engine/free_index.h"

#include <gtest/gtest.h>

#include <deque>

#include "src/engine/heap_segment.h"

namespace commpool::engine {
namespace {

class FreeIndexTest : public ::testing::Test {
 protected:
  FreeIndexTest() {
    first_.index = 0;
    first_.range = {0x900000, 0x100000};  // above the second: addresses must not count
    second_.index = 1;
    second_.range = {0x100000, 0x100000};
  }

  Block* Add(HeapSegment& segment, uint64_t offset, uint64_t bytes, std::vector<Use> uses = {}) {
    Block& block = blocks_.emplace_back();
    block.segment = &segment;
    block.offset = offset;
    block.bytes = bytes;
    block.uses = std::move(uses);
    index_.Insert(&block);
    return &block;
  }

  HeapSegment first_;
  HeapSegment second_;
  std::deque<Block> blocks_;
  FreeIndex index_;
};

TEST_F(FreeIndexTest, FindsNothingWhereNothingFits) {
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream}), nullptr);
  EXPECT_EQ(index_.LargestBytes(), 0u);
  Add(first_, 0, 512);
  EXPECT_EQ(index_.Find({1024, 1, Reuse::kAnyStream}), nullptr);
}

TEST_F(FreeIndexTest, PrefersTheSmallestThenTheFirstSegmentThenTheLowestOffset) {
  Add(second_, 0, 1024);
  Block* later = Add(first_, 4096, 1024);
  Block* earlier = Add(first_, 1024, 1024);
  Block* large = Add(second_, 8192, 2048);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), earlier);
  index_.Erase(earlier);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), later);
  EXPECT_EQ(index_.Find({1025, 1, Reuse::kSameStream}), large);
  EXPECT_EQ(index_.LargestBytes(), 2048u);
}

TEST_F(FreeIndexTest, OffersAStreamItsOwnBlocksAndIdleOnes) {
  Block* idle = Add(first_, 0, 4096);
  Block* own = Add(first_, 8192, 2048, {{1, kNoFence, kNobody}});
  Add(first_, 16384, 1024, {{2, kNoFence, kNobody}});
  Add(first_, 32768, 512, {{1, kNoFence, kNobody}, {2, 7, kNobody}});
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), own);
  EXPECT_EQ(index_.Find({512, 3, Reuse::kSameStream}), idle);
  EXPECT_EQ(index_.Find({512, 3, Reuse::kAnyStream})->bytes, 512u);
}

TEST_F(FreeIndexTest, TellsWhichBlocksItHolds) {
  Block* block = Add(first_, 0, 512);
  Block stranger = *block;
  EXPECT_TRUE(index_.Contains(block));
  EXPECT_FALSE(index_.Contains(&stranger));
  index_.Erase(block);
  EXPECT_FALSE(index_.Contains(block));
  EXPECT_EQ(index_.count(), 0u);
  index_.DropEmptyClasses();
  EXPECT_DEATH(index_.Erase(block), "missing from the free index");
}

}  // namespace
}  // namespace commpool::engine
