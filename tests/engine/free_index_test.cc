// The free index, and its lists of free blocks in both orders, compared with std::set through many changes.
#include "src/library/engine/free_index.h"

#include <gtest/gtest.h>

#include <deque>
#include <iterator>
#include <random>
#include <set>
#include <tuple>

namespace commpool::internal::engine {
namespace {

class TwoSegments : public ::testing::Test {
 protected:
  TwoSegments() {
    first_.index = 0;
    first_.range = {0x900000, 0x100000};  // above the second: addresses must not count
    second_.index = 1;
    second_.range = {0x100000, 0x100000};
  }

  Block* Make(HeapSegment& segment, uint64_t offset, uint64_t bytes) {
    Block* const block = &made_.emplace_back();
    block->segment = &segment;
    block->offset = offset;
    block->bytes = bytes;
    return block;
  }

  HeapSegment first_;
  HeapSegment second_;
  std::deque<Block> made_;
};

class FreeBlocksTest : public TwoSegments, public ::testing::WithParamInterface<Order> {
 protected:
  Block* Insert(HeapSegment& segment, uint64_t offset, uint64_t bytes) {
    Block* const block = Make(segment, offset, bytes);
    free_.Insert(block);
    expected_.insert(block);
    return block;
  }
  void EraseOne(uint64_t random) {
    const auto one = std::next(expected_.begin(), static_cast<long>(random % expected_.size()));
    EXPECT_TRUE(free_.Erase(*one));
    EXPECT_FALSE(free_.Erase(*one));
    expected_.erase(one);
  }
  // Leaves the first or the last `bytes` of a block: in its struct, or in another.
  void ShrinkOne(uint64_t random, uint64_t bytes) {
    const auto one = std::next(expected_.begin(), static_cast<long>(random % expected_.size()));
    Block* const block = *one;
    if (block->bytes <= bytes) return;
    expected_.erase(one);
    Block* part = block;
    if (random % 2 == 0) {
      part = Make(*block->segment, block->offset + block->bytes - bytes, 0);
    }
    part->bytes = bytes;
    free_.Shrink(block, part);
    expected_.insert(part);
    if (part != block) {
      EXPECT_FALSE(free_.Erase(block));
    }
  }
  void ExpectSame(uint64_t bytes) {
    Block* first = nullptr;
    std::set<Block*> visited;
    for (Block* const block : expected_) {
      if (block->bytes < bytes) continue;
      if (first == nullptr) first = block;
      visited.insert(block);
    }
    EXPECT_EQ(free_.FirstFrom(bytes), first);
    free_.VisitFrom(bytes, [&](Block* block) { EXPECT_EQ(visited.erase(block), 1u); });
    EXPECT_TRUE(visited.empty());
    EXPECT_EQ(free_.empty(), expected_.empty());
  }

  struct InOrder {
    bool operator()(const Block* a, const Block* b) const { return KeyOf(*a) < KeyOf(*b); }
    std::tuple<uint64_t, uint64_t, uint64_t> KeyOf(const Block& block) const {
      return {order == Order::kBySize ? block.bytes : 0, block.segment->index, block.offset};
    }
    Order order;
  };

  FreeBlocks free_{GetParam()};
  std::set<Block*, InOrder> expected_{InOrder{GetParam()}};
};

TEST_P(FreeBlocksTest, AreNoneAtFirst) {
  ExpectSame(0);
  ExpectSame(~uint64_t{0});
}

TEST_P(FreeBlocksTest, AreFoundByEverySizeUpToTheLargest) {
  for (int bit = 0; bit < 64; ++bit) Insert(first_, static_cast<uint64_t>(bit), uint64_t{1} << bit);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t bytes = uint64_t{1} << bit;
    ExpectSame(bytes - 1);
    ExpectSame(bytes);
    ExpectSame(bytes + 1);
  }
  ExpectSame(~uint64_t{0});
}

TEST_P(FreeBlocksTest, OfOneSizeComeInTheOrderOfTheirPlaces) {
  Insert(second_, 0, 4096);
  Insert(first_, 8192, 4096);
  Block* const lowest = Insert(first_, 1024, 4096);
  EXPECT_EQ(free_.FirstFrom(4096), lowest);
  for (uint64_t offset = 0; offset < 1000; ++offset) Insert(second_, 10000 + offset, 4096);
  EXPECT_EQ(free_.FirstFrom(4096), lowest);
  while (!expected_.empty()) {
    EraseOne(0);
    ExpectSame(4096);
  }
}

TEST_P(FreeBlocksTest, AreNotShrunkWhereTheyAreNot) {
  Block* const block = Insert(first_, 0, 4096);
  EraseOne(0);
  EXPECT_DEATH(free_.Shrink(block, block), "missing from its list");
}

TEST_P(FreeBlocksTest, AnswerLikeASetThroughRandomChanges) {
  std::mt19937_64 random(7);
  for (uint64_t step = 0; step < 6000; ++step) {
    // Grows mostly in one half of the time, shrinks mostly in the other.
    const bool grows = (step / 1000) % 2 == 0;
    if (expected_.empty() || random() % 4 < (grows ? 3u : 1u)) {
      Insert(random() % 2 == 0 ? first_ : second_, step * 4096, random() % 3 == 0 ? 7 : 1 + random() % 4000);
    } else if (random() % 2 == 0) {
      ShrinkOne(random(), 1 + random() % 2000);
    } else {
      EraseOne(random());
    }
    if (step % 5 == 0) ExpectSame(random() % 4200);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, FreeBlocksTest, ::testing::Values(Order::kBySize, Order::kByPlace),
                         [](const auto& order) { return order.param == Order::kBySize ? "BySize" : "ByPlace"; });

class FreeIndexTest : public TwoSegments {
 protected:
  explicit FreeIndexTest(Choice choice = Choice::kBestFit) : index_(choice) {}

  Block* Add(HeapSegment& segment, uint64_t offset, uint64_t bytes, Uses uses = {}) {
    Block* const block = Make(segment, offset, bytes);
    block->uses = std::move(uses);
    index_.Insert(block);
    return block;
  }

  Block* Find(uint64_t bytes, StreamKey stream = 1, Reuse reuse = Reuse::kSameStream) {
    return index_.Find({bytes, stream, reuse});
  }

  FreeIndex index_;
};

class FirstFitTest : public FreeIndexTest {
 protected:
  FirstFitTest() : FreeIndexTest(Choice::kFirstFit) {}
};

TEST_F(FreeIndexTest, FindsNothingWhereNothingFits) {
  EXPECT_EQ(Find(512, 1, Reuse::kAnyStream), nullptr);
  EXPECT_EQ(index_.LargestBytes(), 0u);
  Add(first_, 0, 512);
  EXPECT_EQ(Find(1024, 1, Reuse::kAnyStream), nullptr);
}

TEST_F(FreeIndexTest, PrefersTheSmallestThenTheFirstSegmentThenTheLowestOffset) {
  Add(second_, 0, 1024);
  Block* later = Add(first_, 4096, 1024);
  Block* earlier = Add(first_, 1024, 1024);
  Block* large = Add(second_, 8192, 2048);
  EXPECT_EQ(Find(512), earlier);
  index_.Erase(earlier);
  EXPECT_EQ(Find(512), later);
  EXPECT_EQ(Find(1025), large);
  EXPECT_EQ(index_.LargestBytes(), 2048u);
}

TEST_F(FreeIndexTest, OffersAStreamItsOwnBlocksAndIdleOnes) {
  Block* idle = Add(first_, 0, 4096);
  Block* own = Add(first_, 8192, 2048, {{1, kNoFence, kNoMoment}});
  Add(first_, 16384, 1024, {{2, kNoFence, kNoMoment}});
  Add(first_, 32768, 512, {{1, kNoFence, kNoMoment}, {2, 7, kNoMoment}});
  EXPECT_EQ(Find(512), own);
  EXPECT_EQ(Find(512, 3), idle);
  EXPECT_EQ(Find(512, 3, Reuse::kAnyStream)->bytes, 512u);
}

TEST_F(FirstFitTest, TakesTheLowestThatIsLargeEnough) {
  Add(second_, 0, 1024);
  Block* low = Add(first_, 1024, 4096);
  Add(first_, 8192, 1024);
  Add(first_, 0, 512);
  EXPECT_EQ(Find(1024), low);
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
  EXPECT_EQ(Find(1024), own);
  EXPECT_EQ(Find(1024, 1, Reuse::kIdle), idle);
  EXPECT_EQ(Find(1024, 1, Reuse::kAnyStream), others);
}

TEST_F(FreeIndexTest, TakesTheBestFitWhetherItsSegmentIsWholeOrNot) {
  Block* whole = Add(second_, 0, second_.range.bytes);
  second_.range.bytes *= 2;  // the next block is no whole segment
  Add(second_, whole->bytes, whole->bytes);
  second_.range.bytes /= 2;
  EXPECT_EQ(Find(whole->bytes, 1, Reuse::kIdle), whole);
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
  Block* graphs = Make(first_, 8192, 512);
  graphs->part = 9;
  index_.Insert(graphs);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kLarge, 9}), graphs);
  EXPECT_EQ(index_.Find({512, 1, Reuse::kAnyStream, Space::kLarge, 8}), nullptr);
  EXPECT_EQ(Find(512, 1, Reuse::kAnyStream), common);
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
  EXPECT_EQ(Find(1024), block);
  FreeList* const list = block->free_list;
  index_.Erase(block);
  block->uses = {{2, kNoFence, kNoMoment}};
  index_.Insert(block);
  EXPECT_NE(block->free_list, list);
  EXPECT_EQ(Find(1024), other);
  EXPECT_EQ(Find(1024, 2), block);
  index_.Erase(block);
  index_.Erase(other);
  EXPECT_EQ(index_.LargestBytes(), 0u);
}

TEST_F(FreeIndexTest, LearnsOfListsThatComeAfterASearch) {
  EXPECT_EQ(Find(512), nullptr);
  Block* const own = Add(first_, 0, 2048, {{1, kNoFence, kNoMoment}});
  EXPECT_EQ(Find(512), own);
  Block* const idle = Add(first_, 4096, 1024);
  EXPECT_EQ(Find(512), idle);
  index_.Erase(own);
  index_.DropEmptyClasses();
  EXPECT_EQ(Find(2048), nullptr);
  EXPECT_EQ(Find(512), idle);
}

}  // namespace
}  // namespace commpool::internal::engine
