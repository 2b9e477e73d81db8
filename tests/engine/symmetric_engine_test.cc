#include "src/library/engine/symmetric_engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "src/library/base/bytes.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
using Waits = std::vector<StreamUse>;

std::optional<Served> Ask(SymmetricEngine& engine, uint64_t bytes, StreamKey stream = 1) {
  const Result<Outcome> outcome = engine.Allocate(bytes, stream);
  CheckInvariants(engine);
  EXPECT_TRUE(outcome.ok());
  if (std::holds_alternative<Grow>(*outcome)) return std::nullopt;
  return std::get<Served>(*outcome);
}

std::vector<StreamKey> Free(SymmetricEngine& engine, Address address) {
  const Result<Freed> freed = engine.Free(address);
  CheckInvariants(engine);
  EXPECT_TRUE(freed.ok());
  return StreamsOf(freed->missing);
}

TEST(SymmetricEngine, NamesTheBytesToReserve) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  const Result<Outcome> outcome = engine.Allocate(33 * kMiB + 1, 1);
  EXPECT_EQ(std::get<Grow>(*outcome).bytes, 33 * kMiB + 512);
  EXPECT_FALSE(engine.CanServe(512));
  EXPECT_EQ(engine.SegmentsEver(), 0u);
  engine.AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(engine.SegmentsEver(), 1u);
  EXPECT_TRUE(engine.CanServe(2 * kMiB));
  EXPECT_FALSE(engine.CanServe(2 * kMiB + 1));
  EXPECT_FALSE(engine.CanServe(0));
  EXPECT_FALSE(engine.CanServe(std::numeric_limits<uint64_t>::max()));
}

TEST(SymmetricEngine, DefersFreesUntilTheyAreApplied) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 2 * kMiB)->address;
  EXPECT_TRUE(Free(engine, address).empty());
  EXPECT_EQ(engine.counters().pending_bytes, 2 * kMiB);
  EXPECT_EQ(engine.counters().allocated_blocks.current, 0u);
  EXPECT_TRUE(engine.WhollyFreeSegments().empty());
  EXPECT_FALSE(engine.Find(address).ok());
  EXPECT_EQ(engine.Snapshot()[0].state, COMMPOOL_BLOCK_PENDING);
  EXPECT_FALSE(Ask(engine, 512).has_value());

  EXPECT_EQ(engine.LocallyFreed(), (std::vector<Sequence>{0}));
  engine.ApplyFrees({0});
  CheckInvariants(engine);
  EXPECT_TRUE(engine.LocallyFreed().empty());
  EXPECT_EQ(engine.counters().pending_bytes, 0u);
  EXPECT_EQ(Ask(engine, 2 * kMiB)->address, address);
}

// The peak of a training step: a loss in lower precision, its copy, and their gradients; the first is half as large as
// the others. The same step with another batch must find as much room.
TEST(SymmetricEngine, PlacesTheBlocksOfALossWithoutAHole) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 1024 * kMiB});
  ASSERT_TRUE(Ask(engine, 512 * kMiB).has_value());
  for (const uint64_t whole : {168 * kMiB, 160 * kMiB, 170 * kMiB}) {
    const Address half = Ask(engine, whole / 2)->address;
    const Address copy = Ask(engine, whole)->address;
    const Address kept = Ask(engine, whole)->address;
    Free(engine, copy);
    Free(engine, half);
    const std::optional<Served> gradient = Ask(engine, whole);
    const std::optional<Served> last = Ask(engine, whole);
    ASSERT_TRUE(gradient.has_value());
    ASSERT_TRUE(last.has_value()) << "three of " << whole << " bytes fit into 512 MiB";
    Free(engine, gradient->address);
    Free(engine, kept);
    Free(engine, last->address);
  }
}

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
      const Result<Outcome> here = plain.Allocate(bytes, 1);
      const Result<Outcome> there = asked.Allocate(bytes, step % 3 == 0 ? 2 : 1);
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
    CheckInvariants(asked);
  }
  EXPECT_EQ(plain.log().hash(), asked.log().hash());
}

TEST(SymmetricEngine, PlacesInANewEpochLikeANewEngine) {
  SymmetricEngine fresh({}, FreeOrder::kOrdered);
  SymmetricEngine old({}, FreeOrder::kOrdered);
  const auto take = [](SymmetricEngine& engine, uint64_t bytes) {
    return std::get<Served>(*engine.Allocate(bytes, 1)).address;
  };
  old.AddSegment({kBase, 256 * kMiB});
  ASSERT_TRUE(old.Free(take(old, 4 * kMiB)).ok());
  old.DeviceIdle(0, old.Now());
  old.RemoveSegment(0);
  old.BeginEpoch();
  EXPECT_EQ(old.SegmentsEver(), 0u);
  EXPECT_EQ(old.log().hash(), fresh.log().hash());
  std::vector<Address> places;
  for (SymmetricEngine* const engine : {&fresh, &old}) {
    engine->AddSegment({kBase, 256 * kMiB});
    const Address first = take(*engine, 2 * kMiB);
    for (uint64_t pair = 0; pair < 32; ++pair) {
      const Address hole = take(*engine, 2 * kMiB + 2 * pair * 512);
      take(*engine, 2 * kMiB + (2 * pair + 1) * 512);
      ASSERT_TRUE(engine->Free(hole).ok());
    }
    ASSERT_TRUE(engine->Free(first).ok());
    places.push_back(take(*engine, 2 * kMiB));
  }
  EXPECT_EQ(places[1], places[0]);
  EXPECT_EQ(old.log().hash(), fresh.log().hash());
}

TEST(SymmetricEngine, NumbersAllocationsAnewInANewEpoch) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  for (int epoch = 0; epoch < 2; ++epoch) {
    engine.AddSegment({kBase, 8 * kMiB});
    Free(engine, Ask(engine, 2 * kMiB)->address);
    engine.DeviceIdle(0, engine.Now());
    EXPECT_EQ(engine.LocallyFreed(), (std::vector<Sequence>{0})) << epoch;
    engine.ApplyFrees(engine.LocallyFreed());
    engine.RemoveSegment(0);
    engine.BeginEpoch();
  }
}

TEST(SymmetricEngine, KeepsSmallBlocksAwayFromLargeOnes) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 64 * kMiB});
  EXPECT_EQ(Ask(engine, 512)->address, kBase);
  const Address large = Ask(engine, 4 * kMiB)->address;
  EXPECT_EQ(large, kBase + 60 * kMiB);
  EXPECT_EQ(Ask(engine, kMiB)->address, kBase + 512);
  Free(engine, large);
  EXPECT_TRUE(engine.CanServe(62 * kMiB));
}

TEST(SymmetricEngine, RefusesASecondFreeOfADeferredBlock) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 1000)->address;
  Free(engine, address);
  const Status status = engine.Free(address).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("freed already"), std::string::npos);
  EXPECT_NE(status.message().find("0x7f0000000000"), std::string::npos);
  EXPECT_EQ(engine.RecordStream(address, 2).code(), StatusCode::kNotFound);
  EXPECT_EQ(engine.Free(0x10).status().code(), StatusCode::kNotFound);
}

TEST(SymmetricEngine, OffersADeferredFreeOnceItsFencesHaveCome) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 2 * kMiB)->address;
  ASSERT_TRUE(engine.RecordStream(address, 2).ok());
  EXPECT_EQ(Free(engine, address), (std::vector<StreamKey>{2}));
  EXPECT_TRUE(engine.LocallyFreed().empty());
  engine.AttachFence(MissingOf(engine, address, 2), 11);
  EXPECT_EQ(engine.LocallyFreed(), (std::vector<Sequence>{0}));
  engine.ApplyFrees({0});
  EXPECT_EQ(Ask(engine, 512, 3)->waits, (Waits{{1, kNoFence}, {2, 11}}));
  engine.FencePassed(11);
  CheckInvariants(engine);
  EXPECT_EQ(Ask(engine, 512, 3)->waits, (Waits{{1, kNoFence}}));
}

TEST(SymmetricEngine, TakesOrderedFreesAtOnce) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 2 * kMiB)->address;
  Free(engine, address);
  EXPECT_EQ(Ask(engine, 2 * kMiB, 2)->waits, (Waits{{1, kNoFence}}));
  EXPECT_TRUE(engine.LocallyFreed().empty());
}

TEST(SymmetricEngine, ServesAnOrderedFreeBeforeItsFenceComes) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 2 * kMiB)->address;
  ASSERT_TRUE(engine.RecordStream(address, 2).ok());
  EXPECT_EQ(Free(engine, address), (std::vector<StreamKey>{2}));
  EXPECT_EQ(Ask(engine, kMiB, 3)->waits, (Waits{{1, kNoFence}, {2, kNoFence}}));
  engine.AttachFence(MissingOf(engine, address, 2), 11);
  CheckInvariants(engine);
  EXPECT_EQ(engine.PendingFences(), (std::vector<Fence>{11}));
  engine.FencePassed(11);
  EXPECT_TRUE(engine.PendingFences().empty());
}

TEST(SymmetricEngine, MergesWithAnyUses) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address low = Ask(engine, kMiB, 1)->address;
  const Address high = Ask(engine, kMiB, 2)->address;
  Free(engine, low);
  Free(engine, high);
  EXPECT_EQ(Ask(engine, 2 * kMiB, 3)->waits, (Waits{{1, kNoFence}, {2, kNoFence}}));
}

TEST(SymmetricEngine, DropsUsesWhenTheDeviceIsIdleOrAStreamForgotten) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  Free(engine, Ask(engine, kMiB, 1)->address);
  engine.ForgetStream(1);
  CheckInvariants(engine);
  const Address address = Ask(engine, 2 * kMiB, 2)->address;
  EXPECT_FALSE(engine.IsIdle(0));
  Free(engine, address);
  EXPECT_FALSE(engine.IsIdle(0));
  EXPECT_TRUE(engine.heap().IsWhollyFree(0));
  engine.DeviceIdle(0, engine.Now());
  CheckInvariants(engine);
  EXPECT_TRUE(engine.IsIdle(0));
  EXPECT_EQ(engine.RemoveSegment(0).address, kBase);
  EXPECT_EQ(engine.SegmentsEver(), 1u);
}

TEST(SymmetricEngine, HashesWhatRanksMustShare) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 1000)->address;
  Ask(engine, 4 * kMiB);
  Free(engine, address);
  engine.NoteCollective(SequenceCall::kReserve, kMiB);
  EXPECT_FALSE(engine.Allocate(0, 1).ok());
  ASSERT_EQ(engine.log().count(), 4u);
  EXPECT_EQ(Describe(*engine.log().Entry(0)), "allocate 1,000 bytes (call 0)");
  EXPECT_EQ(Describe(*engine.log().Entry(1)), "refused allocation of 4,194,304 bytes (call 1)");
  EXPECT_EQ(Describe(*engine.log().Entry(2)), "free of block 0 (call 2)");
  EXPECT_EQ(Describe(*engine.log().Entry(3)), "reserve 1,048,576 bytes (call 3)");
}

TEST(SymmetricEngine, HashesTheValueOfEveryCollectiveCall) {
  for (const SequenceCall call : {SequenceCall::kReserve, SequenceCall::kReclaim, SequenceCall::kTrim,
                                  SequenceCall::kRegister, SequenceCall::kDeregister}) {
    SymmetricEngine one({}, FreeOrder::kDeferred);
    SymmetricEngine same({}, FreeOrder::kDeferred);
    SymmetricEngine other({}, FreeOrder::kDeferred);
    one.NoteCollective(call, 2 * kMiB);
    same.NoteCollective(call, 2 * kMiB);
    other.NoteCollective(call, 4 * kMiB);
    EXPECT_EQ(one.log().hash(), same.log().hash());
    EXPECT_NE(one.log().hash(), other.log().hash()) << Describe(*one.log().Entry(0));
  }
}

TEST(SymmetricEngine, KeepsDeferredFreesOutOfTheHash) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 1000)->address;
  const uint64_t hash = engine.log().hash();
  Free(engine, address);
  EXPECT_EQ(engine.log().hash(), hash);
}

TEST(SymmetricEngine, CountsAndFindsLikeAnyEngine) {
  SymmetricEngine engine({}, FreeOrder::kOrdered);
  engine.AddSegment({kBase, 2 * kMiB});
  Free(engine, Ask(engine, 1000)->address);
  Ask(engine, 100);
  EXPECT_EQ(engine.counters().requested_bytes.current, 100u);
  EXPECT_EQ(engine.Find(kBase + 100)->requested_bytes, 100u);
  engine.ResetPeaks();
  EXPECT_EQ(engine.counters().requested_bytes.peak, 100u);
}

TEST(SymmetricEngineDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(SymmetricEngine({.alignment = 512, .granularity = 1000}, FreeOrder::kOrdered), "no multiple");
}

TEST(SymmetricEngineDeathTest, AbortsOnFreesThatThisRankDidNotOffer) {
  SymmetricEngine engine({}, FreeOrder::kDeferred);
  engine.AddSegment({kBase, 2 * kMiB});
  const Address address = Ask(engine, 1000)->address;
  EXPECT_DEATH(engine.ApplyFrees({0}), "did not offer");
  ASSERT_TRUE(engine.RecordStream(address, 2).ok());
  Free(engine, address);
  EXPECT_DEATH(engine.ApplyFrees({0}), "did not offer");
}

}  // namespace
}  // namespace commpool::internal::engine
