// The block map: words of covered addresses, and of no others.
#include "src/engine/block_map.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = Address{1} << 40;
constexpr uint64_t kMiB = 1 << 20;

TEST(BlockMap, FindsNothingWhereNothingIsCovered) {
  const auto map = std::make_unique<BlockMap>();
  EXPECT_EQ(map->Find(kBase), nullptr);
  map->Cover({kBase, kMiB});
  EXPECT_EQ(map->Find(kBase + 1), nullptr) << "no multiple of the unit";
  EXPECT_EQ(map->Find(kBase + 256 * kMiB), nullptr) << "another leaf";
  EXPECT_EQ(map->Find(Address{1} << 60), nullptr) << "no GPU's address";
}

TEST(BlockMap, GivesEveryUnitAWordOfItsOwn) {
  const auto map = std::make_unique<BlockMap>();
  map->Cover({kBase, 128 * kMiB});
  std::set<AtomicWord*> words;
  for (Address address = kBase; address < kBase + 128 * kMiB; address += kClassUnit) {
    AtomicWord* const word = map->Find(address);
    ASSERT_NE(word, nullptr);
    ASSERT_EQ(word->load(), 0u);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 128 * kMiB / kClassUnit);
}

TEST(BlockMap, CoversARangeToItsEndAndNoFurther) {
  const auto map = std::make_unique<BlockMap>();
  map->Cover({kBase, 64 * kMiB});
  EXPECT_NE(map->Find(kBase + 64 * kMiB - kClassUnit), nullptr);
  EXPECT_EQ(map->Find(kBase + 64 * kMiB), nullptr) << "the next leaf";
  constexpr Address kEnd = Address{1} << 57;
  map->Cover({kEnd - kMiB, kMiB});
  EXPECT_NE(map->Find(kEnd - kClassUnit), nullptr) << "the last address that a GPU may have";
  map->Cover({kEnd, kMiB});
  EXPECT_EQ(map->Find(kEnd), nullptr);
}

TEST(BlockMap, KeepsWhatItCoversMoreThanOnce) {
  const auto map = std::make_unique<BlockMap>();
  map->Cover({kBase, kMiB});
  AtomicWord* const word = map->Find(kBase);
  word->store(7);
  map->Cover({kBase, 128 * kMiB});
  map->Cover({kBase, 128 * kMiB});
  EXPECT_EQ(map->Find(kBase), word);
  EXPECT_EQ(word->load(), 7u);
  EXPECT_NE(map->Find(kBase + 64 * kMiB), nullptr);
}

TEST(BlockMap, GivesItsAddressesBackToTheSystem) {
  const auto pages_in_use = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const uint64_t before = pages_in_use();
  for (int round = 0; round < 1000; ++round) std::make_unique<BlockMap>()->Cover({kBase, kMiB});
  EXPECT_LT(pages_in_use() - before, 100'000u) << "each map has hundreds";
}

TEST(BlockMap, KeepsTheWordsOfNeighboursOnDifferentCacheLines) {
  const auto map = std::make_unique<BlockMap>();
  map->Cover({kBase, 64 * kMiB});
  for (uint64_t bytes = kClassUnit; bytes <= kMiB; bytes *= 2) {
    const auto lower = reinterpret_cast<uintptr_t>(map->Find(kBase));
    const auto upper = reinterpret_cast<uintptr_t>(map->Find(kBase + bytes));
    EXPECT_NE(lower / 64, upper / 64) << bytes;
  }
}

}  // namespace
}  // namespace commpool::internal::engine
