// A thread's cache: given blocks come back, live again; others may empty or close the cache at any time.
#include "src/library/engine/thread_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace commpool::internal::engine {
namespace {

constexpr Lane kLane = 3;
constexpr uint64_t kAlignment = 512;
constexpr Address kBase = Address{1} << 40;

class ThreadCacheTest : public ::testing::Test {
 protected:
  // A live block of the request's class that the cache may take.
  CachedBlock Make(uint64_t requested) {
    AtomicWord& word = words_.emplace_back(BlockWord::Cacheable(kLane, ClassOf(requested), requested).bits());
    return {kBase + words_.size() * kSmallBytes, &word};
  }
  static BlockWord WordOf(const CachedBlock& block) { return BlockWord(block.word->load()); }
  bool Give(const CachedBlock& block) { return cache_.Give(block, WordOf(block)); }
  CacheStatistics Statistics() { return ThreadCache::Pause(cache_).Statistics(); }
  // A block that the cache has.
  CachedBlock Given(uint64_t requested) {
    const CachedBlock block = Make(requested);
    EXPECT_TRUE(Give(block));
    return block;
  }

  // Requested bytes, bytes and blocks.
  using Numbers = std::array<int64_t, 3>;
  static Numbers NumbersOf(const Tally& tally) { return {tally.requested, tally.bytes, tally.blocks}; }
  static std::set<Address> AddressesOf(const std::vector<CachedBlock>& blocks) {
    std::set<Address> addresses;
    for (const CachedBlock& block : blocks) addresses.insert(block.address);
    return addresses;
  }
  std::vector<CachedBlock> MakeMany(size_t count) {
    std::vector<CachedBlock> blocks;
    while (blocks.size() < count) blocks.push_back(Make(512));
    return blocks;
  }

  // Not on the stack: AddressSanitizer's fake stack aligns less than a cache needs.
  std::unique_ptr<ThreadCache> MakeCoarse(uint64_t alignment) {
    return std::make_unique<ThreadCache>(kLane, alignment, broken_);
  }

  std::deque<AtomicWord> words_;
  std::atomic<bool> broken_ = false;
  ThreadCache cache_{kLane, kAlignment, broken_};
};

TEST_F(ThreadCacheTest, HasNothingAtFirst) {
  EXPECT_EQ(cache_.Take(1), 0u);
  EXPECT_EQ(cache_.lane(), kLane);
  EXPECT_EQ(Statistics().holding.now.blocks, 0);
  EXPECT_TRUE(cache_.TakeAll().empty());
}

TEST_F(ThreadCacheTest, GivesABlockBackForAnyRequestOfItsClass) {
  const CachedBlock block = Given(1000);
  EXPECT_EQ(WordOf(block).state(), BlockWord::State::kCached);
  EXPECT_EQ(cache_.Take(512), 0u) << "a smaller class";
  EXPECT_EQ(cache_.Take(1025), 0u) << "a larger class";
  EXPECT_EQ(cache_.Take(513), block.address);
  EXPECT_EQ(WordOf(block).state(), BlockWord::State::kCacheable);
  EXPECT_EQ(WordOf(block).requested(), 513u);
  EXPECT_EQ(WordOf(block).lane(), kLane);
  EXPECT_EQ(cache_.Take(513), 0u);
}

TEST_F(ThreadCacheTest, GivesTheLastThatCameFirst) {
  const CachedBlock first = Given(2048);
  const CachedBlock last = Given(2048);
  EXPECT_EQ(cache_.Take(2048), last.address);
  EXPECT_EQ(cache_.Take(2048), first.address);
}

TEST_F(ThreadCacheTest, KeepsBlocksOfEveryClass) {
  const auto expect_kept = [&](uint64_t bytes) {
    const CachedBlock block = Given(bytes);
    EXPECT_EQ(cache_.Take(bytes), block.address);
  };
  for (SizeClass size_class = 0; size_class < 40; ++size_class) expect_kept(ClassBytes(size_class));
  expect_kept(kSmallBytes);
}

TEST_F(ThreadCacheTest, RoundsRequestsUpToThePoolsAlignment) {
  const auto coarse = MakeCoarse(4096);
  const CachedBlock block = Make(4096);
  ASSERT_TRUE(coarse->Give(block, WordOf(block)));
  EXPECT_EQ(coarse->Take(1), block.address);
}

TEST_F(ThreadCacheTest, HasNothingForAnAlignmentBeyondSmallBlocks) {
  const auto coarse = MakeCoarse(2 * kSmallBytes);
  EXPECT_EQ(coarse->Take(1), 0u);
  EXPECT_EQ(coarse->Take(kSmallBytes), 0u);
}

TEST_F(ThreadCacheTest, RefusesABlockThatSomebodyElseFreed) {
  const CachedBlock block = Make(512);
  const BlockWord live = WordOf(block);
  ASSERT_TRUE(cache_.Give(block, live));
  EXPECT_FALSE(cache_.Give(block, live)) << "freed twice";
  const CachedBlock recorded = Make(512);
  const BlockWord before = WordOf(recorded);
  recorded.word->store(BlockWord::Live().bits());
  EXPECT_FALSE(cache_.Give(recorded, before));
  EXPECT_EQ(WordOf(recorded).state(), BlockWord::State::kLive);
  EXPECT_EQ(Statistics().holding.now.blocks, 1);
}

TEST_F(ThreadCacheTest, RefusesABlockThatSomebodyElseFreedWhereSeveralMayToo) {
  cache_.SetFreers(Freers::kSeveral);
  const CachedBlock block = Make(512);
  const BlockWord live = WordOf(block);
  ASSERT_TRUE(cache_.Give(block, live));
  EXPECT_FALSE(cache_.Give(block, live));
  EXPECT_EQ(Statistics().holding.now.blocks, 1);
  EXPECT_EQ(cache_.Take(512), block.address);
}

// Each thread has a cache of the lane. The slower one finds blocks that were freed already, and so catches up.
TEST_F(ThreadCacheTest, IsGivenABlockByOneOfTwoThreadsThatFreeIt) {
  cache_.SetFreers(Freers::kSeveral);
  const auto other = std::make_unique<ThreadCache>(kLane, kAlignment, broken_, Freers::kSeveral);
  const std::vector<CachedBlock> blocks = MakeMany(ThreadCache::kMostBlocks);
  const BlockWord live = WordOf(blocks[0]);
  for (int round = 0; round < 50; ++round) {
    for (const CachedBlock& block : blocks) block.word->store(live.bits());
    std::atomic<int> ready = 0;
    std::atomic<size_t> given = 0;
    const auto free_all = [&](ThreadCache& cache) {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      for (const CachedBlock& block : blocks) given += cache.Give(block, live) ? 1 : 0;
    };
    std::thread thread([&] { free_all(*other); });
    free_all(cache_);
    thread.join();
    ASSERT_EQ(given, blocks.size()) << "each once";
    cache_.TakeAll();
    other->TakeAll();
  }
}

TEST_F(ThreadCacheTest, MakesRoomAsItIsNeeded) {
  const CachedBlock block = Make(512);
  EXPECT_FALSE(cache_.GiveAtOnce(block, WordOf(block))) << "there is no room yet";
  EXPECT_EQ(WordOf(block).state(), BlockWord::State::kCacheable);
  EXPECT_TRUE(Give(block));
  const CachedBlock next = Make(512);
  EXPECT_TRUE(cache_.GiveAtOnce(next, WordOf(next)));
  std::set<Address> given = {block.address, next.address};
  while (given.size() < 100) given.insert(Given(512).address);
  EXPECT_EQ(AddressesOf(cache_.TakeAll()), given) << "those that it had before move there";
}

TEST_F(ThreadCacheTest, MakesNoRoomWhileAnotherThreadLooksAtIt) {
  const CachedBlock block = Make(512);
  {
    const ThreadCache::Pause pause(cache_);
    EXPECT_FALSE(Give(block));
  }
  EXPECT_FALSE(cache_.GiveAtOnce(block, WordOf(block))) << "there is none";
}

TEST_F(ThreadCacheTest, TakesALiveBlockFromCachesOnce) {
  for (const Freers freers : {Freers::kOwner, Freers::kSeveral}) {
    cache_.SetFreers(freers);
    const CachedBlock block = Make(512);
    const BlockWord live = WordOf(block);
    EXPECT_EQ(cache_.TryChange(*block.word, live, BlockWord::Live()), true);
    EXPECT_EQ(WordOf(block).state(), BlockWord::State::kLive);
    EXPECT_EQ(cache_.TryChange(*block.word, live, BlockWord::Live()), false);
    EXPECT_FALSE(cache_.Give(block, live));
  }
  cache_.Close();
  const CachedBlock late = Make(512);
  EXPECT_EQ(cache_.TryChange(*late.word, WordOf(late), BlockWord()), std::nullopt)
      << "another thread may change it now";
}

TEST_F(ThreadCacheTest, KeepsNoMoreBytesThanItsMost) {
  for (int64_t bytes = 0; bytes < ThreadCache::kMostBytes; bytes += kSmallBytes) Given(kSmallBytes);
  const CachedBlock one_more = Make(512);
  EXPECT_FALSE(Give(one_more));
  EXPECT_EQ(WordOf(one_more).state(), BlockWord::State::kCacheable) << "the pool may still free it";
  EXPECT_EQ(Statistics().holding.now.bytes, ThreadCache::kMostBytes);
  EXPECT_NE(cache_.Take(kSmallBytes), 0u);
  EXPECT_TRUE(Give(one_more));
}

TEST_F(ThreadCacheTest, KeepsNoMoreBlocksOfAClassThanItsMost) {
  for (size_t count = 0; count < ThreadCache::kMostBlocks; ++count) Given(512);
  EXPECT_FALSE(Give(Make(512)));
  EXPECT_TRUE(Give(Make(1024)));
}

TEST_F(ThreadCacheTest, HandsNothingOutWhileTheDeviceIsBroken) {
  const CachedBlock block = Given(512);
  broken_ = true;
  EXPECT_EQ(cache_.Take(512), 0u);
  EXPECT_TRUE(Give(Make(512))) << "frees go on";
  broken_ = false;
  EXPECT_NE(cache_.Take(512), 0u);
  EXPECT_EQ(cache_.Take(512), block.address);
}

TEST_F(ThreadCacheTest, GivesAllItsBlocksToTheThreadThatEmptiesIt) {
  std::set<Address> given;
  for (const uint64_t bytes : {512, 512, 4096, 1 << 20}) given.insert(Given(bytes).address);
  const std::vector<CachedBlock> taken = cache_.TakeAll();
  for (const CachedBlock& block : taken) EXPECT_EQ(WordOf(block).state(), BlockWord::State::kCached);
  EXPECT_EQ(AddressesOf(taken), given);
  EXPECT_EQ(Statistics().holding.now.bytes, 0);
  EXPECT_FALSE(cache_.closed());
  EXPECT_TRUE(Give(Make(512))) << "it goes on";
}

TEST_F(ThreadCacheTest, GivesTheLargestOfItsHalfBack) {
  for (int count = 0; count < 4; ++count) Given(64 << 10);
  const Address large = Given(256 << 10).address;
  const std::vector<CachedBlock> half = cache_.TakeHalf();
  ASSERT_EQ(half.size(), 1u);
  EXPECT_EQ(half[0].address, large);
  EXPECT_EQ(Statistics().holding.now.bytes, 256 << 10);
  EXPECT_EQ(cache_.TakeHalf().size(), 2u);
}

TEST_F(ThreadCacheTest, RefusesEverythingOnceItIsClosed) {
  const CachedBlock block = Given(512);
  const std::vector<CachedBlock> left = cache_.Close()->blocks;
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].address, block.address);
  EXPECT_TRUE(cache_.closed());
  EXPECT_FALSE(Give(Make(512)));
  EXPECT_EQ(cache_.Take(512), 0u);
  EXPECT_EQ(cache_.Take(kSmallBytes), 0u);
  EXPECT_TRUE(cache_.closed()) << "whatever is asked of it";
  EXPECT_FALSE(cache_.Close().has_value());
  EXPECT_TRUE(cache_.TakeAll().empty());
  EXPECT_TRUE(cache_.closed()) << "whoever empties it again";
  cache_.SetFreers(Freers::kSeveral);
  EXPECT_TRUE(cache_.closed()) << "whoever frees into it";
}

TEST_F(ThreadCacheTest, CountsWhatWentThroughIt) {
  Given(1000);
  Given(300);
  ASSERT_NE(cache_.Take(700), 0u);
  EXPECT_EQ(Statistics().holding.now.requested, 600);
  EXPECT_EQ(cache_.Close()->requested_more, 300) << "1,000 came, 700 went";
  CacheStatistics sum = Statistics();
  EXPECT_EQ(sum.holding.now.requested, 0);
  EXPECT_EQ(sum.holding.now.blocks, 0);
  EXPECT_EQ(NumbersOf(sum.taken), (Numbers{700, 1024, 1}));
  EXPECT_EQ(NumbersOf(sum.left), (Numbers{300, 512, 1}));
  sum += {{{1, 2, 3}, {10, 11, 12}}, {900, 2048, 2}, {60, 64, 8}};
  EXPECT_EQ(sum.holding.least.blocks, 3);
  EXPECT_EQ(sum.holding.now.bytes, 11);
  EXPECT_EQ(NumbersOf(sum.taken), (Numbers{1600, 3072, 3}));
  EXPECT_EQ(NumbersOf(sum.left), (Numbers{360, 576, 9}));
}

TEST_F(ThreadCacheTest, KnowsTheLeastThatItHeldSinceItsOwnerLooked) {
  Given(512);
  Given(1000);
  EXPECT_EQ(cache_.Look().now.bytes, 1536);
  ASSERT_NE(cache_.Take(600), 0u);
  ASSERT_NE(cache_.Take(512), 0u);
  Given(2048);
  const Holding holding = cache_.Look();
  EXPECT_EQ(NumbersOf(holding.least), (Numbers{400, 0, 0})) << "what was given for 1,000 went for 600";
  EXPECT_EQ(holding.now.bytes, 2048);
  EXPECT_EQ(cache_.Look().least.bytes, 2048);
  cache_.TakeAll();
  EXPECT_EQ(cache_.Look().least.bytes, 0) << "what leaves counts no more";
  Given(512);
  const ThreadCache::Pause pause(cache_);
  EXPECT_EQ(cache_.Look().now.bytes, 0) << "another thread is at it";
}

TEST_F(ThreadCacheTest, LosesNoBlockToAThreadThatEmptiesIt) {
  const std::vector<CachedBlock> blocks = MakeMany(64);
  std::vector<CachedBlock> emptied;
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) {
      for (const CachedBlock& block : cache_.TakeAll()) emptied.push_back(block);
      std::this_thread::yield();
    }
  });
  std::multiset<Address> own;
  for (const CachedBlock& block : blocks) {
    while (!Give(block)) std::this_thread::yield();
    if (const Address address = cache_.Take(512); address != 0) own.insert(address);
  }
  done = true;
  other.join();
  for (const CachedBlock& block : emptied) own.insert(block.address);
  const auto left = cache_.Close();
  for (const CachedBlock& block : left->blocks) own.insert(block.address);
  const std::set<Address> all = AddressesOf(blocks);
  EXPECT_EQ(own, std::multiset<Address>(all.begin(), all.end())) << "each once";
}

}  // namespace
}  // namespace commpool::internal::engine
