// A block that comes and goes without the engine: who may have it, what ends it, and that threads share it rightly.
#include "src/engine/repeated_block.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/bytes.h"
#include "src/engine/caching_engine.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 3;
constexpr StreamKey kOther = 4;

TEST(RepeatedBlock, ServesTheVerySizeOnItsStreamOnceItWasGivenBack) {
  RepeatedBlock block;
  EXPECT_EQ(block.TakeAgain(8, kStream), 0u) << "none was offered";
  EXPECT_FALSE(block.GiveBack(kBase));
  block.Offer(kBase, 8, kStream);
  EXPECT_EQ(block.TakeAgain(8, kStream), 0u) << "it is live";
  EXPECT_FALSE(block.GiveBack(kBase + 512));
  EXPECT_TRUE(block.GiveBack(kBase));
  EXPECT_FALSE(block.GiveBack(kBase)) << "it is free";
  EXPECT_EQ(block.TakeAgain(9, kStream), 0u);
  EXPECT_EQ(block.TakeAgain(8, kOther), 0u);
  EXPECT_EQ(block.TakeAgain(8, kStream), kBase);
  EXPECT_EQ(block.TakeAgain(8, kStream), 0u);
}

TEST(RepeatedBlock, SaysAtItsEndWhatCameAndWent) {
  RepeatedBlock block;
  for (const uint64_t times : {0, 1, 5}) {
    for (const bool free : {false, true}) {
      block.Offer(kBase, 8, kStream);
      for (uint64_t time = 0; time < times; ++time) {
        EXPECT_TRUE(block.GiveBack(kBase));
        EXPECT_EQ(block.TakeAgain(8, kStream), kBase);
      }
      if (free) {
        EXPECT_TRUE(block.GiveBack(kBase));
      }
      const RepeatedBlock::Ended ended = block.End();
      EXPECT_EQ(ended.address, kBase);
      EXPECT_EQ(ended.times, times);
      EXPECT_EQ(ended.free, free);
      EXPECT_FALSE(block.GiveBack(kBase));
      EXPECT_EQ(block.TakeAgain(8, kStream), 0u);
    }
  }
}

class Engines : public ::testing::Test {
 protected:
  Engines() {
    engine_.AddSegment({kBase, 64 * kMiB});
    for (int time = 0; time < 2; ++time) {
      block_ = engine_.AllocateAtOnce(8 * kMiB, kStream);
      if (time == 0) engine_.FreeAtOnce(block_.address);
    }
    EXPECT_TRUE(engine_.served_again());
    engine_.OfferAgain(block_, 8 * kMiB, kStream);
  }

  CachingEngine engine_{EngineOptions()};
  SegmentRange block_;
};

TEST_F(Engines, KnowOfAFreeAtTheirNextCall) {
  EXPECT_TRUE(engine_.repeated()->GiveBack(block_.address));
  EXPECT_EQ(engine_.counters().allocated_blocks.current, 0u);
  EXPECT_FALSE(engine_.FreeAtOnce(block_.address)) << "it was freed";
  EXPECT_FALSE(engine_.RecordStream(block_.address, kOther).ok());
  engine_.CheckInvariants();
}

TEST_F(Engines, EndItWhereSomethingBecomesOfTheLiveBlock) {
  EXPECT_TRUE(engine_.RecordStream(block_.address, kOther).ok());
  EXPECT_FALSE(engine_.repeated()->GiveBack(block_.address)) << "another stream used it";
  EXPECT_EQ(engine_.Free(block_.address)->streams_to_fence, ReservedVector<StreamKey>{kOther});
}

TEST_F(Engines, OfferNoBlockThatOthersCameBetween) {
  EXPECT_TRUE(engine_.FreeAtOnce(block_.address));
  const SegmentRange other = engine_.AllocateAtOnce(5 * kMiB, kStream);
  EXPECT_TRUE(engine_.FreeAtOnce(other.address));
  EXPECT_NE(engine_.AllocateAtOnce(8 * kMiB, kStream).bytes, 0u);
  EXPECT_EQ(engine_.AllocateAtOnce(5 * kMiB, kStream).bytes, 5 * kMiB);
  EXPECT_FALSE(engine_.served_again());
}

TEST_F(Engines, OfferNoSmallBlock) {
  const SegmentRange first = engine_.AllocateAtOnce(512, kStream);
  EXPECT_TRUE(engine_.FreeAtOnce(first.address));
  EXPECT_EQ(engine_.AllocateAtOnce(512, kStream).address, first.address);
  EXPECT_FALSE(engine_.served_again());
}

TEST(RepeatedBlockLife, EndsWithItsEngine) {
  std::shared_ptr<RepeatedBlock> kept;
  {
    CachingEngine engine{EngineOptions()};
    engine.AddSegment({kBase, 64 * kMiB});
    EXPECT_TRUE(engine.FreeAtOnce(engine.AllocateAtOnce(8 * kMiB, kStream).address));
    engine.OfferAgain(engine.AllocateAtOnce(8 * kMiB, kStream), 8 * kMiB, kStream);
    kept = engine.repeated();
  }
  EXPECT_FALSE(kept->GiveBack(kBase));
}

// Each thread that has the block is alone with it, and none is lost or had twice, whoever ends it meanwhile.
TEST(RepeatedBlockThreads, HaveItOneAtATime) {
  constexpr int kThreads = 2;
  constexpr int kOffers = 500;
  const auto owned = std::make_unique<RepeatedBlock>();  // GCC's sanitized stacks do not align to 64 bytes
  RepeatedBlock& block = *owned;
  std::atomic<bool> over{false};
  std::atomic<int> owners{0};
  std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> kept{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      while (!over.load()) {
        const Address address = block.TakeAgain(8, kStream);
        if (address == 0) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_EQ(owners.fetch_add(1), 0);
        ++taken;
        owners.fetch_sub(1);
        if (!block.GiveBack(address)) ++kept;  // it ended in this thread's hands
      }
    });
  }
  uint64_t counted = 0;
  uint64_t live = 0;
  for (int offer = 0; offer < kOffers; ++offer) {
    block.Offer(kBase, 8, kStream);
    EXPECT_TRUE(block.GiveBack(kBase));
    if (offer % 2 == 0) std::this_thread::yield();
    const RepeatedBlock::Ended ended = block.End();
    counted += ended.times;
    if (!ended.free) ++live;
    while (kept.load() < live) std::this_thread::yield();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted, taken.load());
}

}  // namespace
}  // namespace commpool::internal::engine
