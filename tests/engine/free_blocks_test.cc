// Free blocks in both orders, compared with std::set, through many changes.
#include "src/library/engine/free_blocks.h"

#include <gtest/gtest.h>

#include <deque>
#include <iterator>
#include <random>
#include <set>
#include <tuple>

namespace commpool::internal::engine {
namespace {

class FreeBlocksTest : public ::testing::TestWithParam<Order> {
 protected:
  FreeBlocksTest() {
    first_.index = 0;
    first_.range = {0x900000, 0x100000};  // above the second: addresses must not count
    second_.index = 1;
    second_.range = {0x100000, 0x100000};
  }

  Block* Insert(HeapSegment& segment, uint64_t offset, uint64_t bytes) {
    Block* const block = &made_.emplace_back();
    block->segment = &segment;
    block->offset = offset;
    block->bytes = bytes;
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
      part = &made_.emplace_back();
      part->segment = block->segment;
      part->offset = block->offset + block->bytes - bytes;
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

  HeapSegment first_;
  HeapSegment second_;
  std::deque<Block> made_;
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

}  // namespace
}  // namespace commpool::internal::engine
