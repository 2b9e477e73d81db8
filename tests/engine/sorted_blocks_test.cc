// Sorted blocks, compared with std::map, through many changes.
#include "src/library/engine/sorted_blocks.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "src/library/engine/block_table.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kMostKey = 4000;

class SortedBlocksTest : public ::testing::Test {
 protected:
  void Insert(uint64_t key) {
    Block* const block = &made_.emplace_back();
    sorted_.Insert(key, block);
    expected_.emplace(key, block);
  }
  void Erase(uint64_t key) {
    EXPECT_EQ(sorted_.Erase(key), expected_.erase(key) == 1);
    EXPECT_FALSE(sorted_.Erase(key));
  }
  void ExpectSame(uint64_t key) const {
    const auto after = expected_.upper_bound(key);
    const auto* const last = sorted_.LastUpTo(key);
    ASSERT_EQ(last == nullptr, after == expected_.begin());
    if (last != nullptr) {
      EXPECT_EQ(last->block, std::prev(after)->second);
    }
  }
  void ExpectSameOrder() const {
    for (uint64_t key = 0; key <= kMostKey; key += 7) ExpectSame(key);
    EXPECT_EQ(sorted_.count(), expected_.size());
  }

  std::deque<Block> made_;
  SortedBlocks<uint64_t> sorted_;
  std::map<uint64_t, Block*> expected_;
};

TEST_F(SortedBlocksTest, IsEmptyAtFirst) {
  ExpectSame(1);
  ExpectSameOrder();
  EXPECT_FALSE(sorted_.Erase(1));
}

TEST_F(SortedBlocksTest, KeepsTheOrderWhereKeysComeAscendingAndDescending) {
  for (uint64_t key = 0; key < 1000; ++key) Insert(2000 + key);
  for (uint64_t key = 1000; key > 0; --key) Insert(key);
  ExpectSameOrder();
  for (uint64_t key = 1; key <= 1000; ++key) Erase(key);
  ExpectSameOrder();
}

TEST_F(SortedBlocksTest, AnswersLikeAMapThroughRandomChanges) {
  std::mt19937_64 random(7);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t key = random() % kMostKey;
    // Grows mostly in one half of the time, shrinks mostly in the other.
    const bool grows = (step / 4000) % 2 == 0;
    if (random() % 4 < (grows ? 3u : 1u)) {
      if (!expected_.contains(key)) Insert(key);
    } else {
      Erase(key);
    }
    ExpectSame(random() % kMostKey);
    if (step % 500 == 0) ExpectSameOrder();
  }
}

TEST(BlockTable, FindsTheBlockThatBeginsAtAnAddressAndNoOther) {
  std::mt19937_64 random(11);
  std::deque<Block> made;
  std::map<Address, Block*> expected;
  BlockTable table;
  for (int step = 0; step < 20000; ++step) {
    // Few addresses, all multiples of a large power of two: entries push each other from their places.
    const Address address = (random() % 512) << 21;
    const auto found = expected.find(address);
    if (found == expected.end()) {
      Block* const block = &made.emplace_back();
      table.Insert(address, block);
      expected.emplace(address, block);
    } else {
      table.Erase(address);
      expected.erase(found);
    }
    const Address other = (random() % 512) << 21;
    const auto there = expected.find(other);
    ASSERT_EQ(table.Find(other), there == expected.end() ? nullptr : there->second);
    ASSERT_EQ(table.count(), expected.size());
  }
  EXPECT_EQ(table.Find(512), nullptr);
}

TEST(BlockTableDeathTest, RefusesASecondBlockAtAnAddressAndTheEraseOfNone) {
  Block block;
  BlockTable table;
  table.Insert(4096, &block);
  EXPECT_DEATH(table.Insert(4096, &block), "two blocks");
  EXPECT_DEATH(table.Erase(8192), "no block begins");
}

}  // namespace
}  // namespace commpool::internal::engine
