// The block map has words for addresses at which blocks began, and for no others.
#include "src/library/engine/block_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = Address{1} << 40;
constexpr uint64_t kMiB = 1 << 20;

TEST(BlockMap, FindsNothingWhereNothingWasMade) {
  const auto map = std::make_unique<BlockMap>();
  EXPECT_EQ(map->Find(kBase), nullptr);
  AtomicWord* const word = map->Make(kBase);
  EXPECT_NE(word, nullptr);
  EXPECT_EQ(map->Make(kBase), word);
  EXPECT_EQ(map->Find(kBase), word);
  EXPECT_EQ(map->Find(kBase + 1), nullptr) << "no multiple of the unit";
  EXPECT_EQ(map->Make(kBase + 1), nullptr);
  EXPECT_EQ(map->Find(kBase + 256 * kMiB), nullptr) << "another leaf";
  EXPECT_EQ(map->Make(Address{1} << 60), nullptr) << "no GPU's address";
}

TEST(BlockMap, GivesEveryUnitAWordOfItsOwn) {
  const auto map = std::make_unique<BlockMap>();
  std::set<AtomicWord*> words;
  for (Address address = kBase; address < kBase + 128 * kMiB; address += kClassUnit) {
    AtomicWord* const word = map->Make(address);
    ASSERT_NE(word, nullptr);
    ASSERT_EQ(word->load(), 0u);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 128 * kMiB / kClassUnit);
}

TEST(BlockMap, MakesTheWordsOfALeafAndNoFurther) {
  const auto map = std::make_unique<BlockMap>();
  map->Make(kBase);
  EXPECT_NE(map->Find(kBase + 64 * kMiB - kClassUnit), nullptr);
  EXPECT_EQ(map->Find(kBase + 64 * kMiB), nullptr) << "the next leaf";
  constexpr Address kEnd = Address{1} << 57;
  EXPECT_NE(map->Make(kEnd - kClassUnit), nullptr) << "the last address that a GPU may have";
  EXPECT_NE(map->MakeLarge(kEnd - kClassUnit), nullptr);
  EXPECT_EQ(map->Make(kEnd), nullptr);
  EXPECT_EQ(map->MakeLarge(kEnd), nullptr);
  EXPECT_EQ(map->FindLarge(kEnd), nullptr);
}

TEST(BlockMap, MakesEachWordOnce) {
  const auto map = std::make_unique<BlockMap>();
  AtomicWord* const word = map->Make(kBase);
  AtomicWord* const large = map->MakeLarge(kBase);
  word->store(7);
  large->store(8);
  map->Make(kBase + kMiB);
  map->Make(kBase + 64 * kMiB);
  map->MakeLarge(kBase + 64 * kMiB);
  EXPECT_EQ(map->Find(kBase), word);
  EXPECT_EQ(word->load(), 7u);
  EXPECT_EQ(map->FindLarge(kBase), large);
  EXPECT_EQ(large->load(), 8u);
}

TEST(BlockMap, GivesItsAddressesBackToTheSystem) {
  const auto pages_in_use = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const uint64_t before = pages_in_use();
  for (int round = 0; round < 1000; ++round) std::make_unique<BlockMap>()->Make(kBase);
  EXPECT_LT(pages_in_use() - before, 100'000u) << "each map has thousands";
}

TEST(BlockMap, KeepsTheWordsOfNeighboursOnDifferentCacheLines) {
  const auto map = std::make_unique<BlockMap>();
  const auto lower = reinterpret_cast<uintptr_t>(map->Make(kBase));
  for (uint64_t bytes = kClassUnit; bytes <= kMiB; bytes *= 2) {
    const auto upper = reinterpret_cast<uintptr_t>(map->Find(kBase + bytes));
    EXPECT_NE(lower / 64, upper / 64) << bytes;
  }
}

TEST(BlockMap, MakesAWordForEachMiBOfLargeBlocks) {
  const auto map = std::make_unique<BlockMap>();
  EXPECT_EQ(map->FindLarge(kBase), nullptr);
  AtomicWord* const word = map->MakeLarge(kBase + 512);
  ASSERT_NE(word, nullptr);
  EXPECT_EQ(word->load(), 0u);
  EXPECT_EQ(map->FindLarge(kBase), word) << "of the same MiB";
  EXPECT_EQ(map->FindLarge(kBase + kMiB - 1), word);
  EXPECT_EQ(map->FindLarge(kBase + kMiB), word + 1);
  EXPECT_EQ(map->Find(kBase + 512), nullptr) << "small blocks have theirs made apart";
  EXPECT_EQ(map->MakeLarge(Address{1} << 60), nullptr);
}

// The first touch of a page is a fault, which takes longer than the whole allocation.
TEST(BlockMap, HasTheWordsOfLargeBlocksOnFewPages) {
  const auto map = std::make_unique<BlockMap>();
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::set<uintptr_t> pages;
  for (Address address = kBase; address < kBase + 8192 * kMiB; address += 3 * kMiB + 512) {
    pages.insert(reinterpret_cast<uintptr_t>(map->MakeLarge(address)) / page_bytes);
  }
  EXPECT_LE(pages.size(), 17u) << "of 2,730 blocks in 8 GiB";
}

TEST(LargeWord, SaysWhichOfItsMiBsAddressesTheBlockBeginsAt) {
  EXPECT_FALSE(LargeWord(0).IsOf(kBase)) << "none";
  const LargeWord word = LargeWord::Live(kBase + 3 * kMiB + 512, 77);
  EXPECT_TRUE(word.IsOf(kBase + 3 * kMiB + 512));
  EXPECT_FALSE(word.IsOf(kBase + 3 * kMiB));
  EXPECT_FALSE(word.IsOf(kBase + 3 * kMiB + 513));
  EXPECT_EQ(word.owner(), 77u);
  EXPECT_EQ(LargeWord(word.bits()).owner(), 77u);
  EXPECT_TRUE(LargeWord::Live(kBase, 0).IsOf(kBase)) << "nobody's number is told";
}

}  // namespace
}  // namespace commpool::internal::engine
