// A large block that was just freed serves the next request of its size. By the first fit it lies exactly where a
// search would place it.
#include "src/library/engine/resting_blocks.h"

#include <gtest/gtest.h>

#include <random>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/engine/heap.h"
#include "src/library/engine/symmetric_engine.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr uint64_t kAlignment = 512;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

class RestingBlocksTest : public ::testing::Test {
 protected:
  RestingBlocksTest() { segment_ = heap_.AddSegment({kBase, 256 * kMiB}); }

  Block* Take(uint64_t mib, StreamKey stream = kStream) {
    Block* const block = heap_.Take({mib * kMiB, stream, Reuse::kSameStream, Space::kLarge, kCommonPart, kFit});
    if (block != nullptr) block->uses.clear();
    return block;
  }
  void Free(Block* block, StreamKey stream = kStream) {
    block->uses = {{stream, kNoFence, kNoBlock}};
    heap_.Close(block, 0);
  }
  size_t resting() const { return static_cast<size_t>(heap_.resting().end() - heap_.resting().begin()); }

  static constexpr Choice kFit = Choice::kFirstFit;
  Heap heap_{kAlignment, MergePolicy::kCompatible, 2};
  SegmentIndex segment_ = 0;
};

TEST_F(RestingBlocksTest, ServeARequestOfTheirSize) {
  Block* const block = Take(8);
  Free(block);
  EXPECT_EQ(block->state, BlockState::kResting);
  EXPECT_EQ(Take(8), block);
  EXPECT_EQ(block->state, BlockState::kLive);
  EXPECT_EQ(resting(), 0u);
}

TEST_F(RestingBlocksTest, AreOneBlockWithTheRestForARequestOfAnotherSize) {
  Free(Take(8));
  Block* const larger = Take(9);
  EXPECT_EQ(AddressOf(*larger), kBase);
  EXPECT_EQ(resting(), 0u);
}

TEST_F(RestingBlocksTest, ServeNoOtherStream) {
  Block* const block = Take(8);
  Free(block);
  Block* const other = Take(8, kOther);
  EXPECT_EQ(other, nullptr) << "all that is free merged with what the first stream used";
  EXPECT_EQ(Take(8), block);
}

TEST_F(RestingBlocksTest, AreNoMoreThanTheHeapWasToldTo) {
  Block* blocks[3] = {Take(8), Take(16), Take(32)};
  for (int index = 2; index >= 0; --index) Free(blocks[index]);
  EXPECT_EQ(resting(), 2u);
  EXPECT_EQ(heap_.LargestFree(), 256 * kMiB);
}

TEST_F(RestingBlocksTest, LeaveTheSegmentWhollyFree) {
  Free(Take(8));
  ASSERT_EQ(resting(), 1u);
  EXPECT_TRUE(heap_.IsWhollyFree(segment_));
  heap_.RemoveSegment(segment_);
  EXPECT_EQ(resting(), 0u);
  EXPECT_EQ(heap_.Find(kBase), nullptr);
}

TEST_F(RestingBlocksTest, DoNotServeWhereASearchWouldFindALowerPlace) {
  Block* const lower = Take(8);
  Block* const upper = Take(8);
  Take(8);
  Free(lower);
  Free(upper);
  EXPECT_EQ(AddressOf(*Take(8)), kBase);
}

TEST_F(RestingBlocksTest, DoNotServeOnceASegmentCameThatFitsBetter) {
  const Fit fit{8 * kMiB, kStream, Reuse::kSameStream, Space::kLarge, kCommonPart, Choice::kBestFit};
  Block* const block = heap_.Take(fit);
  block->uses.clear();
  Free(block);
  heap_.AddSegment({kBase + kGiB, fit.bytes});
  EXPECT_EQ(AddressOf(*heap_.Take(fit)), kBase + kGiB);
}

TEST_F(RestingBlocksTest, KeepSmallBlocksAwake) {
  for (const uint64_t bytes : {64 * kKiB, kSmallBytes}) Free(heap_.Take({bytes, kStream, Reuse::kSameStream}));
  EXPECT_EQ(resting(), 0u);
  Free(heap_.Take({kSmallBytes + kAlignment, kStream, Reuse::kSameStream}));
  EXPECT_EQ(resting(), 1u);
}

TEST_F(RestingBlocksTest, ServeOneRequestWhileTheOthersRestOn) {
  for (const Reuse reuse : {Reuse::kSameStream, Reuse::kAnyStream}) {
    Block* const small = Take(8);
    Block* const large = Take(16);
    Free(large);
    Free(small);
    EXPECT_EQ(heap_.Take({8 * kMiB, kStream, reuse, Space::kLarge, kCommonPart, kFit}), small);
    EXPECT_EQ(large->state, BlockState::kResting);
    EXPECT_EQ(resting(), 1u);
    small->uses.clear();
    Free(small);
    heap_.MergeResting();
  }
}

TEST_F(RestingBlocksTest, AreNeverAGraphsAndServeNoGraph) {
  constexpr Part kGraph = 5;
  const Fit fit{8 * kMiB, kStream, Reuse::kSameStream, Space::kLarge, kGraph, kFit};
  Block* const block = Take(8);
  Free(block);
  ASSERT_EQ(resting(), 1u);
  EXPECT_EQ(heap_.Take(fit), nullptr) << "a graph takes idle memory alone";
  ASSERT_NE(heap_.segments().at(heap_.AddSegment({kBase + kGiB, 8 * kMiB})), nullptr);
  Block* const graphs = heap_.Take(fit);
  ASSERT_NE(graphs, nullptr);
  heap_.Close(graphs, 0);
  EXPECT_EQ(graphs->state, BlockState::kFree);
}

TEST_F(RestingBlocksTest, DoNotServeOnceALowerBlockWasOpened) {
  Block* const lower = Take(8);
  heap_.Close(lower, ReasonsOf(Reason::kRanks));
  Block* const upper = Take(8);
  Free(upper);
  ASSERT_EQ(upper->state, BlockState::kResting);
  heap_.EndReason(lower, Reason::kRanks);
  EXPECT_EQ(AddressOf(*Take(8)), kBase);
}

TEST_F(RestingBlocksTest, DoNotServeOnceMemoryCameThatFitsBetter) {
  const Address hole = kBase + kGiB;
  heap_.AddSegment({hole, 64 * kMiB}, Space::kLarge, BlockState::kUnmapped);
  const Fit fit{8 * kMiB, kStream, Reuse::kSameStream, Space::kLarge, kCommonPart, Choice::kBestFit};
  Block* const block = heap_.Take(fit);
  Free(block);
  heap_.Convert({hole, 8 * kMiB}, BlockState::kUnmapped, BlockState::kFree);
  EXPECT_EQ(AddressOf(*heap_.Take(fit)), hole);
}

TEST(PlacementHistory, OutdatesWhatWasPlacedAfterAFreedBlockAndNothingElse) {
  PlacementHistory history;
  const Placement first = history.Note();
  const Placement second = history.Note();
  const Placement third = history.Note();
  history.NoteFree(second);
  EXPECT_TRUE(history.IsCurrent(first));
  EXPECT_TRUE(history.IsCurrent(second));
  EXPECT_FALSE(history.IsCurrent(third));
  const Placement fourth = history.Note();
  EXPECT_TRUE(history.IsCurrent(fourth));
  history.NoteOther();
  EXPECT_FALSE(history.IsCurrent(first));
  EXPECT_FALSE(history.IsCurrent(fourth));
  EXPECT_TRUE(history.IsCurrent(history.Note()));
}

// A slow model of PlacementHistory that forgets nothing.
class ExactHistory {
 public:
  Placement Note() {
    outdated_.push_back(false);
    return history_.Note();
  }
  void NoteFree(Placement freed) {
    history_.NoteFree(freed);
    for (size_t placement = freed + 1; placement < outdated_.size(); ++placement) outdated_[placement] = true;
  }
  void Expect() const {
    for (size_t placement = 1; placement < outdated_.size(); ++placement) {
      ASSERT_EQ(history_.IsCurrent(placement), !outdated_[placement]) << "placement " << placement;
    }
  }
  Placement last() const { return outdated_.size() - 1; }

 private:
  PlacementHistory history_;
  std::vector<bool> outdated_ = {false};
};

TEST(PlacementHistory, IsExactWhileItHasRoom) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    ExactHistory history;
    for (int frees = 0; frees < 32;) {
      if (random() % 3 != 0) {
        history.Note();
        continue;
      }
      history.NoteFree(random() % (history.last() + 1));
      ++frees;
      history.Expect();
    }
  }
}

TEST(PlacementHistory, NeedsRoomOnlyForWhatLiesApart) {
  ExactHistory history;
  for (int range = 0; range < 20; ++range) {
    const Placement older = history.Note();
    history.Note();
    history.NoteFree(older);
  }
  for (int count = 0; count < 40; ++count) history.NoteFree(history.Note());
  history.Expect();
  const Placement older = history.Note();
  history.Note();
  history.NoteFree(older);
  for (int count = 0; count < 40; ++count) {
    const Placement last = history.last();
    history.Note();
    history.NoteFree(last);
  }
  history.Expect();
}

// Only the last free of a block older than the placement, and after the placement, matters.
TEST(PlacementHistory, NeverCallsAnOutdatedPlacementCurrent) {
  std::mt19937_64 random(3);
  PlacementHistory history;
  std::vector<bool> outdated = {false};
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0) {
      history.Note();
      outdated.push_back(false);
    } else {
      const Placement freed = random() % outdated.size();
      history.NoteFree(freed);
      for (size_t placement = freed + 1; placement < outdated.size(); ++placement) outdated[placement] = true;
    }
    for (size_t placement = 1; placement < outdated.size(); ++placement) {
      ASSERT_FALSE(outdated[placement] && history.IsCurrent(placement)) << "placement " << placement;
    }
    ASSERT_TRUE(outdated.back() || history.IsCurrent(outdated.size() - 1));
  }
}

// The same calls on two engines: in one blocks rest, in the other never.
class RestingPlaces : public ::testing::TestWithParam<EngineOptions> {
 protected:
  static EngineOptions WithoutResting(EngineOptions options) {
    options.resting_blocks = 0;
    return options;
  }

  void Allocate(uint64_t bytes, StreamKey stream) {
    const Result<Outcome> here = resting_.Allocate(bytes, stream, Reuse::kSameStream);
    const Result<Outcome> there = without_resting_.Allocate(bytes, stream, Reuse::kSameStream);
    ASSERT_EQ(here->index(), there->index());
    if (const Grow* const grow = std::get_if<Grow>(&*here)) {
      AddSegment(grow->bytes);
      return;
    }
    live_.push_back(std::get<Served>(*here).address);
    ASSERT_EQ(std::get<Served>(*there).address, live_.back());
  }
  void Free(size_t place) {
    ASSERT_TRUE(resting_.Free(live_[place]).ok());
    ASSERT_TRUE(without_resting_.Free(live_[place]).ok());
    live_.erase(live_.begin() + static_cast<long>(place));
  }
  void AddSegment(uint64_t bytes) {
    resting_.AddSegment({next_, bytes});
    without_resting_.AddSegment({next_, bytes});
    next_ += bytes;
  }

  CachingEngine resting_{GetParam()};
  CachingEngine without_resting_{WithoutResting(GetParam())};
  Address next_ = kBase;
  std::vector<Address> live_;
};

TEST_P(RestingPlaces, AreThePlacesThatASearchWouldFind) {
  std::mt19937_64 random(7);
  for (int step = 0; step < 3000; ++step) {
    const uint64_t choice = random() % 100;
    if (choice < 52 && live_.size() < 14) {
      Allocate((1 + random() % 5) * 2 * kMiB, random() % 8 == 0 ? kOther : kStream);
    } else if (choice < 97 && !live_.empty()) {
      Free(random() % 3 == 0 ? random() % live_.size() : live_.size() - 1);
    } else if (choice == 97) {
      resting_.DeviceIdle(0, resting_.Now());
      without_resting_.DeviceIdle(0, without_resting_.Now());
    } else if (choice == 98) {
      AddSegment(8 * kMiB);
    } else {
      ASSERT_EQ(resting_.counters().largest_free_block_bytes, without_resting_.counters().largest_free_block_bytes);
    }
    ASSERT_FALSE(HasFatalFailure()) << "step " << step;
  }
  resting_.CheckInvariants();
}

// With the best fit the place may differ: free memory that shrank meanwhile can fit better.
INSTANTIATE_TEST_SUITE_P(FirstFit, RestingPlaces, ::testing::Values(EngineOptions{.choice = Choice::kFirstFit}));

// Ranks whose programs read statistics, or whose fences pass, at different moments.
TEST(SymmetricEngine, PlacesEquallyAfterAnyQuestionOfARank) {
  EngineOptions options;
  SymmetricEngine plain(options, FreeOrder::kOrdered);
  SymmetricEngine asked(options, FreeOrder::kOrdered);
  plain.AddSegment({kBase, 512 * kMiB});
  asked.AddSegment({2 * kBase, 512 * kMiB});
  std::mt19937_64 random(5);
  std::vector<Address> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 12 && random() % 2 == 0) {
      const uint64_t bytes = (1 + random() % 6) * 3 * kMiB;
      const Result<Outcome> here = plain.Allocate(bytes, kStream);
      const Result<Outcome> there = asked.Allocate(bytes, step % 3 == 0 ? kOther : kStream);
      ASSERT_EQ(here->index(), there->index());
      if (!std::holds_alternative<Served>(*here)) continue;
      live.push_back(std::get<Served>(*here).address);
      ASSERT_EQ(std::get<Served>(*there).address, live.back() + kBase);
    } else if (!live.empty()) {
      const size_t place = random() % 3 == 0 ? random() % live.size() : live.size() - 1;
      ASSERT_TRUE(plain.Free(live[place]).ok());
      ASSERT_TRUE(asked.Free(live[place] + kBase).ok());
      live.erase(live.begin() + static_cast<long>(place));
    }
    static_cast<void>(asked.counters());
    static_cast<void>(asked.CanServe(20 * kMiB));
    if (step % 7 == 0) asked.DeviceIdle(0, asked.Now());
    asked.CheckInvariants();
  }
  EXPECT_EQ(plain.log().hash(), asked.log().hash());
}

// So many frees of older blocks that one more would make a history forget: each leaves a hole that fits nothing later.
TEST(SymmetricEngine, PlacesInANewEpochLikeANewEngine) {
  SymmetricEngine fresh({}, FreeOrder::kOrdered);
  SymmetricEngine old({}, FreeOrder::kOrdered);
  const auto take = [](SymmetricEngine& engine, uint64_t bytes) {
    return std::get<Served>(*engine.Allocate(bytes, kStream)).address;
  };
  old.AddSegment({kBase, 256 * kMiB});
  ASSERT_TRUE(old.Free(take(old, 4 * kMiB)).ok());
  old.DeviceIdle(0, old.Now());
  old.RemoveSegment(0);
  old.BeginEpoch();
  EXPECT_EQ(old.NextSequence(), 0u);
  EXPECT_EQ(old.SegmentsEver(), 0u);
  EXPECT_EQ(old.log().hash(), fresh.log().hash());
  std::vector<Address> places;
  for (SymmetricEngine* const engine : {&fresh, &old}) {
    engine->AddSegment({kBase, 256 * kMiB});
    const Address first = take(*engine, 2 * kMiB);
    for (uint64_t pair = 0; pair < 32; ++pair) {
      const Address hole = take(*engine, 2 * kMiB + 2 * pair * kAlignment);
      take(*engine, 2 * kMiB + (2 * pair + 1) * kAlignment);
      ASSERT_TRUE(engine->Free(hole).ok());
    }
    ASSERT_TRUE(engine->Free(first).ok());
    places.push_back(take(*engine, 2 * kMiB));
  }
  EXPECT_EQ(places[1], places[0]);
  EXPECT_EQ(places[0], kBase) << "it rested, and nothing has outdated its place";
  EXPECT_EQ(old.log().hash(), fresh.log().hash());
}

}  // namespace
}  // namespace commpool::internal::engine
