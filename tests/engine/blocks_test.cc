// Blocks: the streams that use one, in order and each once, which a new user must wait for; and blocks by their
// addresses. The first use lies in the block, more lie in an array, and callers see no difference. The table has the
// blocks that begin at an address; the block map has words for addresses at which blocks began, and for no others.
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/block.h"
#include "src/library/engine/block_map.h"
#include "src/library/engine/block_table.h"

namespace commpool::internal::engine {
namespace {

Uses UsesOf(std::initializer_list<Use> uses) {
  Uses all;
  for (const Use& use : uses) AddUse(all, use);
  return all;
}

// "1:5" is fence 5 of stream 1; a stream alone is all of its work.
std::string Waits(const Uses& uses, StreamKey stream) {
  std::string text;
  for (const StreamUse& wait : WaitsOf(uses, stream)) {
    text += (text.empty() ? "" : " ") + std::to_string(wait.stream);
    if (wait.fence != kNoFence) text += ":" + std::to_string(wait.fence);
  }
  return text;
}

TEST(BlockUses, AreAscendingAndEachOnce) {
  EXPECT_EQ(UsesOf({{3, kNoFence}, {1, 9}, {2, kNoFence}, {1, 4}, {3, kNoFence}}),
            (Uses{{1, 4}, {1, 9}, {2, kNoFence}, {3, kNoFence}}));
}

TEST(BlockUses, OfTwoBlocksUnite) {
  Uses uses = UsesOf({{1, kNoFence}, {4, 2}});
  UniteUses(uses, UsesOf({{2, 7}, {4, 2}, {5, kNoFence}}));
  EXPECT_EQ(uses, (Uses{{1, kNoFence}, {2, 7}, {4, 2}, {5, kNoFence}}));
}

TEST(BlockUses, AreWaitedForByOtherStreamsAlone) {
  EXPECT_EQ(Waits(UsesOf({{1, kNoFence}}), 1), "");
  EXPECT_EQ(Waits(UsesOf({{1, kNoFence}, {2, kNoFence}}), 1), "2");
  EXPECT_EQ(Waits(UsesOf({{1, 4}, {2, kNoFence}, {3, 8}}), 2), "1:4 3:8");
}

TEST(BlockUses, WithoutAFenceCoverTheFencesOfTheirStream) {
  static_assert(kNoFence == 0, "a use without a fence sorts first");
  EXPECT_EQ(Waits(UsesOf({{2, kNoFence}, {2, 5}, {2, 6}, {3, 1}, {3, 2}}), 1), "2 3:1 3:2");
}

TEST(BlockArena, GivesRecycledBlocksOutAgainWithTheirRoomForUses) {
  BlockArena arena;
  Block* const block = arena.Make();
  block->uses = {{1, kNoFence}, {2, 5}, {3, kNoFence}};
  const Use* const room = block->uses.begin();
  arena.Recycle(block);
  ASSERT_EQ(arena.Make(), block);
  block->uses = Uses();
  block->uses.push_back({4, kNoFence});
  EXPECT_NE(block->uses.begin(), room) << "the first lies in the block";
  for (const StreamKey stream : {5, 6}) block->uses.push_back({stream, kNoFence});
  EXPECT_EQ(block->uses.begin(), room);
  EXPECT_NE(arena.Make(), block) << "it was spare once";
}

std::vector<StreamKey> StreamsOf(const Uses& uses) {
  std::vector<StreamKey> streams;
  for (const Use& use : uses) streams.push_back(use.stream);
  EXPECT_EQ(streams.size(), uses.size());
  EXPECT_EQ(streams.empty(), uses.empty());
  return streams;
}

Use Of(StreamKey stream) { return {stream, kNoFence, kNoMoment}; }

TEST(Uses, GrowAtEitherEnd) {
  Uses uses;
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
  uses.push_back(Of(5));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({5}));
  uses.insert(uses.begin(), Of(3));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({3, 5}));
  uses.insert(uses.begin() + 1, Of(4));
  uses.push_back(Of(6));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({3, 4, 5, 6}));
  EXPECT_EQ(uses.front().stream, 3u);
}

TEST(Uses, ShrinkAndGrowAgain) {
  Uses uses = {Of(1), Of(2), Of(3)};
  uses.EraseIf([](const Use& use) { return use.stream != 2; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({2}));
  uses.push_back(Of(4));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({2, 4}));
  uses.clear();
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
  uses.push_back(Of(7));
  uses.EraseIf([](const Use& use) { return use.stream == 8; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({7}));
  uses.EraseIf([](const Use& use) { return use.stream == 7; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
}

TEST(Uses, AreEqualHoweverTheyCameToBe) {
  Uses shrunk = {Of(1), Of(2)};
  shrunk.EraseIf([](const Use& use) { return use.stream == 1; });
  const Uses one = {Of(2)};
  EXPECT_EQ(shrunk, one);
  EXPECT_FALSE(one == Uses());
  EXPECT_FALSE(one == Uses({Of(3)}));
  EXPECT_FALSE(one == Uses({Of(2), Of(3)}));
  EXPECT_EQ(Uses(shrunk), one);
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

constexpr Address kBase = Address{1} << 40;

class BlockMapTest : public ::testing::Test {
 protected:
  const std::unique_ptr<BlockMap> map_ = std::make_unique<BlockMap>();
};

TEST_F(BlockMapTest, FindsNothingWhereNothingWasMade) {
  EXPECT_EQ(map_->Find(kBase), nullptr);
  AtomicWord* const word = map_->Make(kBase);
  EXPECT_NE(word, nullptr);
  EXPECT_EQ(map_->Make(kBase), word);
  EXPECT_EQ(map_->Find(kBase), word);
  EXPECT_EQ(map_->Find(kBase + 1), nullptr) << "no multiple of the unit";
  EXPECT_EQ(map_->Make(kBase + 1), nullptr);
  EXPECT_EQ(map_->Find(kBase + 256 * kMiB), nullptr) << "another leaf";
  EXPECT_EQ(map_->Make(Address{1} << 60), nullptr) << "no GPU's address";
}

TEST_F(BlockMapTest, GivesEveryUnitAWordOfItsOwn) {
  std::set<AtomicWord*> words;
  for (Address address = kBase; address < kBase + 128 * kMiB; address += kClassUnit) {
    AtomicWord* const word = map_->Make(address);
    ASSERT_NE(word, nullptr);
    ASSERT_EQ(word->load(), 0u);
    words.insert(word);
  }
  EXPECT_EQ(words.size(), 128 * kMiB / kClassUnit);
}

TEST_F(BlockMapTest, MakesTheWordsOfALeafAndNoFurther) {
  map_->Make(kBase);
  EXPECT_NE(map_->Find(kBase + 64 * kMiB - kClassUnit), nullptr);
  EXPECT_EQ(map_->Find(kBase + 64 * kMiB), nullptr) << "the next leaf";
  constexpr Address kEnd = Address{1} << 57;
  EXPECT_NE(map_->Make(kEnd - kClassUnit), nullptr) << "the last address that a GPU may have";
  EXPECT_NE(map_->MakeLarge(kEnd - kClassUnit), nullptr);
  EXPECT_EQ(map_->Make(kEnd), nullptr);
  EXPECT_EQ(map_->MakeLarge(kEnd), nullptr);
  EXPECT_EQ(map_->FindLarge(kEnd), nullptr);
}

TEST_F(BlockMapTest, MakesEachWordOnce) {
  AtomicWord* const word = map_->Make(kBase);
  AtomicWord* const large = map_->MakeLarge(kBase);
  word->store(7);
  large->store(8);
  map_->Make(kBase + kMiB);
  map_->Make(kBase + 64 * kMiB);
  map_->MakeLarge(kBase + 64 * kMiB);
  EXPECT_EQ(map_->Find(kBase), word);
  EXPECT_EQ(word->load(), 7u);
  EXPECT_EQ(map_->FindLarge(kBase), large);
  EXPECT_EQ(large->load(), 8u);
}

TEST_F(BlockMapTest, GivesItsAddressesBackToTheSystem) {
  const auto pages_in_use = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const uint64_t before = pages_in_use();
  for (int round = 0; round < 1000; ++round) std::make_unique<BlockMap>()->Make(kBase);
  EXPECT_LT(pages_in_use() - before, 100'000u) << "each map has thousands";
}

TEST_F(BlockMapTest, KeepsTheWordsOfNeighboursOnDifferentCacheLines) {
  const auto lower = reinterpret_cast<uintptr_t>(map_->Make(kBase));
  for (uint64_t bytes = kClassUnit; bytes <= kMiB; bytes *= 2) {
    const auto upper = reinterpret_cast<uintptr_t>(map_->Find(kBase + bytes));
    EXPECT_NE(lower / 64, upper / 64) << bytes;
  }
}

TEST_F(BlockMapTest, MakesAWordForEachMiBOfLargeBlocks) {
  EXPECT_EQ(map_->FindLarge(kBase), nullptr);
  AtomicWord* const word = map_->MakeLarge(kBase + 512);
  ASSERT_NE(word, nullptr);
  EXPECT_EQ(word->load(), 0u);
  EXPECT_EQ(map_->FindLarge(kBase), word) << "of the same MiB";
  EXPECT_EQ(map_->FindLarge(kBase + kMiB - 1), word);
  EXPECT_EQ(map_->FindLarge(kBase + kMiB), word + 1);
  EXPECT_EQ(map_->Find(kBase + 512), nullptr) << "small blocks have theirs made apart";
  EXPECT_EQ(map_->MakeLarge(Address{1} << 60), nullptr);
}

// The first touch of a page is a fault, which takes longer than the whole allocation.
TEST_F(BlockMapTest, HasTheWordsOfLargeBlocksOnFewPages) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::set<uintptr_t> pages;
  for (Address address = kBase; address < kBase + 8192 * kMiB; address += 3 * kMiB + 512) {
    pages.insert(reinterpret_cast<uintptr_t>(map_->MakeLarge(address)) / page_bytes);
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
