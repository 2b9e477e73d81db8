#include "src/library/engine/free_index.h"

#include <gtest/gtest.h>

#include <deque>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {
namespace {

class FreeIndexTest : public ::testing::Test {
 protected:
  explicit FreeIndexTest(Choice choice = Choice::kBestFit) : index_(choice) {
    first_.index = 0;
    first_.range = {0x900000, 0x100000};  // above the second: addresses must not count
    second_.index = 1;
    second_.range = {0x100000, 0x100000};
  }

  Block* Add(HeapSegment& segment, uint64_t offset, uint64_t bytes, Uses uses = {}) {
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

class FirstFitTest : public FreeIndexTest {
 protected:
  FirstFitTest() : FreeIndexTest(Choice::kFirstFit) {}
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
  Block* own = Add(first_, 8192, 2048, {{1, kNoFence, kNoMoment}});
  Add(first_, 16384, 1024, {{2, kNoFence, kNoMoment}});
  Add(first_, 32768, 512, {{1, kNoFence, kNoMoment}, {2, 7, kNoMoment}});
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), own);
  EXPECT_EQ(index_.Find({512, 3, Reuse::kSameStream}), idle);
  EXPECT_EQ(index_.Find({512, 3, Reuse::kAnyStream})->bytes, 512u);
}

TEST_F(FirstFitTest, TakesTheLowestThatIsLargeEnough) {
  Add(second_, 0, 1024);
  Block* low = Add(first_, 1024, 4096);
  Add(first_, 8192, 1024);
  Add(first_, 0, 512);
  EXPECT_EQ(index_.Find({1024, 1, Reuse::kSameStream}), low);
  EXPECT_EQ(index_.LargestBytes(), 4096u);
}

TEST_F(FirstFitTest, TakesTheBestFitOfSmallBlocks) {
  first_.space = Space::kSmall;
  Add(first_, 0, 4096);
  Block* best = Add(first_, 8192, 1024);
  EXPECT_EQ(index_.Find({1024, 1, Reuse::kSameStream, Space::kSmall}), best);
}

TEST_F(FirstFitTest, TakesTheFirstOfOwnAndIdleBlocksAlike) {
  Block* own = Add(first_, 4096, 8192, {{1, kNoFence, kNoMoment}});
  Block* idle = Add(first_, 65536, 1024);
  Block* others = Add(first_, 0, 4096, {{2, kNoFence, kNoMoment}});
  Fit fit{1024, 1, Reuse::kSameStream};
  EXPECT_EQ(index_.Find(fit), own);
  fit.reuse = Reuse::kIdle;
  EXPECT_EQ(index_.Find(fit), idle);
  fit.reuse = Reuse::kAnyStream;
  EXPECT_EQ(index_.Find(fit), others);
}

TEST_F(FreeIndexTest, TakesTheBestFitWhetherItsSegmentIsWholeOrNot) {
  Block* whole = Add(second_, 0, second_.range.bytes);
  second_.range.bytes *= 2;  // the next block is no whole segment
  Add(second_, whole->bytes, whole->bytes);
  second_.range.bytes /= 2;
  EXPECT_EQ(index_.Find({whole->bytes, 1, Reuse::kIdle}), whole);
}

TEST_F(FreeIndexTest, KeepsSmallAndLargeBlocksApart) {
  first_.space = Space::kSmall;
  Block* small = Add(first_, 0, 1024);
  Block* large = Add(second_, 0, 2048);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kLarge}), large);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kSmall}), small);
  EXPECT_EQ(index_.Find({2048, 1, Reuse::kAnyStream, Space::kSmall}), nullptr);
}

TEST_F(FreeIndexTest, OffersAPartItsOwnBlocksAlone) {
  Block* common = Add(first_, 0, 4096);
  Block& graphs = blocks_.emplace_back(*common);
  graphs.offset = 8192;
  graphs.bytes = 512;
  graphs.part = 9;
  index_.Insert(&graphs);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kLarge, 9}), &graphs);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kLarge, 8}), nullptr);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream}), common);
  index_.Erase(common);
  EXPECT_EQ(index_.LargestBytes(), 0u) << "a part's memory is for nobody else";
}

TEST_F(FreeIndexTest, HasNoBlockThatLeftIt) {
  Block* block = Add(first_, 0, 512);
  const UseClass idle = FreeIndex::ClassOf(*block);
  EXPECT_EQ(block->free_list, &index_.lists().at(idle));
  index_.Erase(block);
  EXPECT_TRUE(index_.lists().at(idle).blocks.empty());
  EXPECT_DEATH(index_.Erase(block), "missing from the free index");
  index_.DropEmptyClasses();
  EXPECT_TRUE(index_.lists().empty());
}

TEST_F(FreeIndexTest, KnowsABlockByTheUsesThatItComesWith) {
  Block* const block = Add(first_, 0, 2048);
  Block* const other = Add(first_, 8192, 3072);
  EXPECT_EQ(index_.Find({1024, 1, Reuse::kSameStream}), block);
  FreeList* const list = block->free_list;
  index_.Erase(block);
  block->uses = {{2, kNoFence, kNoMoment}};
  index_.Insert(block);
  EXPECT_NE(block->free_list, list);
  EXPECT_EQ(index_.Find({1024, 1, Reuse::kSameStream}), other);
  EXPECT_EQ(index_.Find({1024, 2, Reuse::kSameStream}), block);
  index_.Erase(block);
  index_.Erase(other);
  EXPECT_EQ(index_.LargestBytes(), 0u);
}

TEST_F(FreeIndexTest, LearnsOfListsThatComeAfterASearch) {
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), nullptr);
  Block* const own = Add(first_, 0, 2048, {{1, kNoFence, kNoMoment}});
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), own);
  Block* const idle = Add(first_, 4096, 1024);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), idle);
  index_.Erase(own);
  index_.DropEmptyClasses();
  EXPECT_EQ(index_.Find({2048, 1, Reuse::kSameStream}), nullptr);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kSameStream}), idle);
}

}  // namespace
}  // namespace commpool::internal::engine
