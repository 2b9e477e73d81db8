// The block map: words of covered addresses, and of no others.
#include "src/engine/block_map.h"

#include <gtest/gtest.h>

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
