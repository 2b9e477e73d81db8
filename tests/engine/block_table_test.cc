// Blocks by the address at which they begin, compared with std::map, through many changes.
#include "src/library/engine/block_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace commpool::internal::engine {
namespace {

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
