// Lanes of threads' caches: one for a pool and a stream. It ends with either.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "src/library/pool/caches/thread_caches.h"
#include "tests/pool/nobodys_owner.h"

namespace commpool::internal {
namespace {

constexpr StreamKey kStream = 64;
constexpr StreamKey kOther = 128;

class Lanes : public ::testing::Test {
 protected:
  CachedPool Pool(PoolHandle handle) { return {handle, owner_, 512, &broken_}; }

  engine::Lane LaneOf(const CachedPool& pool, StreamKey stream) { return caches_->LaneOf(pool, stream, &returned_); }
  // Of the first pool and kStream.
  engine::Lane OpenLane() {
    const engine::Lane lane = LaneOf(Pool(1), kStream);
    caches_->Open(lane);
    return lane;
  }
  void ExpectNoCacheOfAnotherStream() {
    const engine::Lane later = LaneOf(Pool(1), kOther);
    caches_->Open(later);
    EXPECT_EQ(caches_->Find(later), nullptr);
  }
  // The word of a live block of the lane.
  static engine::BlockWord LiveIn(engine::Lane lane) {
    return engine::BlockWord::Cacheable(lane, engine::ClassOf(512), 512);
  }

  engine::ReturnedBlocks returned_;
  const std::shared_ptr<BlockOwner> owner_ = std::make_shared<NobodysOwner>();
  const std::atomic<bool> broken_{false};
  const MemoryObserver observer_{};
  const std::shared_ptr<ThreadCaches> caches_ = std::make_shared<ThreadCaches>(observer_);
};

TEST_F(Lanes, AreOneForEachPoolAndStream) {
  const engine::Lane lane = LaneOf(Pool(1), kStream);
  EXPECT_EQ(LaneOf(Pool(1), kStream), lane);
  EXPECT_NE(LaneOf(Pool(1), kOther), lane);
  EXPECT_NE(LaneOf(Pool(2), kStream), lane);
  EXPECT_EQ(caches_->lanes(), 3u);
}

TEST_F(Lanes, OfStreamsThatMayBeGoneAreFew) {
  const engine::Lane first = LaneOf(Pool(1), NameOfId(1));
  const engine::Lane promised = LaneOf(Pool(1), kStream);
  LaneOf(Pool(2), NameOfId(1));
  for (unsigned long long id = 2; id <= 1000; ++id) caches_->Open(LaneOf(Pool(1), NameOfId(id)));
  EXPECT_EQ(caches_->lanes(), 34u) << "32 of the pool's, one of another pool, and one that is promised";
  EXPECT_EQ(LaneOf(Pool(1), kStream), promised);
  EXPECT_NE(LaneOf(Pool(1), NameOfId(1)), first);
}

TEST_F(Lanes, AreForgottenWithTheirStream) {
  const engine::Lane lane = LaneOf(Pool(1), kStream);
  LaneOf(Pool(1), kOther);
  caches_->Open(lane);
  ASSERT_NE(caches_->Find(lane), nullptr);
  caches_->ForgetStream(1, kStream);
  EXPECT_EQ(caches_->lanes(), 1u) << "streams that come and go leave nothing behind";
  EXPECT_TRUE(caches_->Find(lane)->closed());
  caches_->Open(lane);
  EXPECT_TRUE(caches_->Find(lane)->closed()) << "a lane that is gone gets no cache";
  EXPECT_NE(LaneOf(Pool(1), kStream), lane) << "the handle means another stream now";
}

TEST_F(Lanes, LeaveTheThreadNothingOfCachesThatEnded) {
  const engine::Lane lane = OpenLane();
  ASSERT_NE(caches_->Find(lane), nullptr);
  ASSERT_NE(caches_->Find(1, kStream), nullptr);
  caches_->ForgetStream(1, kStream);
  caches_->Open(LaneOf(Pool(1), kOther));  // here the thread drops caches that have ended
  EXPECT_EQ(caches_->Find(lane), nullptr);
  EXPECT_EQ(caches_->Find(1, kStream), nullptr);
}

TEST_F(Lanes, AreForgottenWithTheirPool) {
  caches_->Open(LaneOf(Pool(1), kStream));
  LaneOf(Pool(2), kStream);
  caches_->ForgetPool(1);
  EXPECT_EQ(caches_->lanes(), 1u);
}

TEST_F(Lanes, LeaveNothingOfAForgottenPoolBehind) {
  const engine::Lane lane = OpenLane();
  const engine::BlockWord live = LiveIn(lane);
  engine::AtomicWord word = live.bits();
  ASSERT_TRUE(caches_->Find(lane)->Give({4096, &word}, live));
  EXPECT_EQ(caches_->Close(1, ThreadCaches::Reopen::kNever).blocks.size(), 1u);
  int64_t left = 0;
  const auto read = [&](const engine::CacheStatistics& statistics) { left = statistics.left.requested; };
  caches_->Statistics(1, read);
  EXPECT_EQ(left, 512);
  caches_->ForgetPool(1);
  caches_->Statistics(1, read);
  EXPECT_EQ(left, 0) << "what its caches did is of no interest any more";
  EXPECT_NE(caches_->Find(OpenLane()), nullptr) << "nor that they were closed";
}

TEST_F(Lanes, OfAClosedPoolGetNoCacheAgain) {
  const engine::Lane lane = OpenLane();
  caches_->Close(1, ThreadCaches::Reopen::kNever);
  caches_->Open(lane);
  EXPECT_TRUE(caches_->Find(lane)->closed());
  ExpectNoCacheOfAnotherStream();
}

TEST_F(Lanes, GetNoCacheOnceTheRuntimeEnds) {
  LaneOf(Pool(1), kStream);
  caches_->CloseAll();
  ExpectNoCacheOfAnotherStream();
}

constexpr int kRacedBlocks = 4000;  // the most that a cache keeps of one class

// Two threads free one block after the other at about the same moment, with every delay between them.
template <typename First, typename Second>
void Race(First first, Second second) {
  std::atomic<int> begun{0};
  std::atomic<int> over{0};
  const auto await = [](const std::atomic<int>& reached, int block) {
    for (int looks = 1; reached < block; ++looks) {
      if (looks % 1000 == 0) std::this_thread::yield();
    }
  };
  std::thread other([&] {
    for (int block = 1; block <= kRacedBlocks; ++block) {
      await(begun, block);
      second(block);
      over = block;
    }
  });
  for (int block = 1; block <= kRacedBlocks; ++block) {
    begun = block;
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(block % 500);
    while (std::chrono::steady_clock::now() < until) {
    }
    first(block);
    await(over, block);
  }
  other.join();
}

// The owner of the only cache frees without an exchange. So another thread that ends a block must keep it out
// meanwhile.
TEST_F(Lanes, LetOneOfTwoThreadsHaveABlockThatBothEnd) {
  const engine::Lane lane = LaneOf(Pool(1), kStream);
  const engine::BlockWord live = LiveIn(lane);
  std::vector<engine::AtomicWord> words(kRacedBlocks + 1);
  for (engine::AtomicWord& word : words) word = live.bits();
  caches_->Open(lane);
  engine::ThreadCache& cache = *caches_->Find(lane);
  std::atomic<int> ended{0};
  const auto change = [&](int block) {
    engine::AtomicWord& word = words[static_cast<size_t>(block)];
    if (word == live.bits() && caches_->TryChange(word, live, engine::BlockWord())) ++ended;
  };
  const auto give = [&](int block) {
    if (cache.Give({4096, &words[static_cast<size_t>(block)]}, live)) {
      ++ended;
    } else {
      change(block);  // the cache was busy, or the other thread came first
    }
  };
  Race(give, change);
  EXPECT_EQ(ended, kRacedBlocks);
  caches_->Close(1, ThreadCaches::Reopen::kNever);  // a cache that ends writes the words of its blocks
}

TEST_F(Lanes, PauseTheirOnlyCacheWhileAnotherThreadEndsABlock) {
  constexpr int kRounds = 100;
  const engine::Lane lane = LaneOf(Pool(1), kStream);
  const engine::BlockWord live = LiveIn(lane);
  caches_->Open(lane);
  for (int round = 0; round < kRounds; ++round) {
    engine::AtomicWord word = live.bits();
    std::atomic<bool> begun{false};
    bool changed = false;
    std::optional<engine::ThreadCache::Pause> pause(*caches_->Find(lane));
    std::thread other([&] {
      begun = true;
      changed = caches_->TryChange(word, live, engine::BlockWord());
    });
    while (!begun) std::this_thread::yield();
    for (int turn = 0; turn < 10; ++turn) std::this_thread::yield();
    word = live.Cached().bits();  // as if the owner were between reading the word and changing it
    pause.reset();
    other.join();
    EXPECT_FALSE(changed);
  }
}

TEST_F(Lanes, LetOneOfTwoCachesHaveABlockThatBothAreGiven) {
  const engine::Lane lane = LaneOf(Pool(1), kStream);
  const engine::BlockWord live = LiveIn(lane);
  std::vector<engine::AtomicWord> words(kRacedBlocks + 1);
  for (engine::AtomicWord& word : words) word = live.bits();
  std::atomic<int> ended{0};
  const auto give = [&](int block) {
    caches_->Open(lane);
    if (caches_->Find(lane)->Give({4096, &words[static_cast<size_t>(block)]}, live)) ++ended;
  };
  Race(give, give);
  // While the other thread's cache was made, this cache refused blocks for a moment.
  EXPECT_LE(ended, kRacedBlocks);
  EXPECT_GE(ended, kRacedBlocks - 1);
  caches_->Close(1, ThreadCaches::Reopen::kNever);
}

}  // namespace
}  // namespace commpool::internal
