// The engine of symmetric pools, and the log of its calls, which ranks compare.
#include "src/library/engine/symmetric_engine.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <utility>

#include "src/library/engine/sequence_log.h"
#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

// It has a segment at kBase where there are bytes.
template <FreeOrder order, uint64_t bytes>
class SymmetricFrees : public EngineTest<SymmetricEngine> {
 protected:
  SymmetricFrees() : EngineTest(EngineOptions(), order) {
    if (bytes > 0) engine().AddSegment({kBase, bytes});
  }
};
using OrderedFrees = SymmetricFrees<FreeOrder::kOrdered, 0>;
using DeferredFrees = SymmetricFrees<FreeOrder::kDeferred, 0>;
using OrderedFreesOfOneSegment = SymmetricFrees<FreeOrder::kOrdered, 2 * kMiB>;
using DeferredFreesOfOneSegment = SymmetricFrees<FreeOrder::kDeferred, 2 * kMiB>;

TEST_F(DeferredFrees, NamesTheBytesToReserve) {
  EXPECT_EQ(std::get<Grow>(*engine().Allocate(33 * kMiB + 1, 1)).bytes, 33 * kMiB + 512);
  EXPECT_FALSE(engine().CanServe(512));
  EXPECT_EQ(engine().SegmentsEver(), 0u);
  engine().AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(engine().SegmentsEver(), 1u);
  EXPECT_TRUE(engine().CanServe(2 * kMiB));
  EXPECT_FALSE(engine().CanServe(2 * kMiB + 1));
  EXPECT_FALSE(engine().CanServe(0));
  EXPECT_FALSE(engine().CanServe(UINT64_MAX));
}

TEST_F(DeferredFreesOfOneSegment, DefersFreesUntilTheyAreApplied) {
  const Address address = Serve(2 * kMiB);
  EXPECT_TRUE(Free(address).empty());
  EXPECT_EQ(counters().pending_bytes, 2 * kMiB);
  EXPECT_EQ(counters().allocated_blocks.current, 0u);
  EXPECT_TRUE(engine().WhollyFreeSegments().empty());
  EXPECT_FALSE(engine().Find(address).ok());
  EXPECT_EQ(engine().Snapshot()[0].state, COMMPOOL_BLOCK_PENDING);
  EXPECT_FALSE(Ask(512));

  EXPECT_EQ(engine().LocallyFreed(), (std::vector<Sequence>{0}));
  engine().ApplyFrees({0});
  EXPECT_TRUE(engine().LocallyFreed().empty());
  EXPECT_EQ(counters().pending_bytes, 0u);
  EXPECT_EQ(Serve(2 * kMiB), address);
}

// The peak of a training step: a loss in lower precision, its copy, and their gradients; the first is half as large as
// the others. The same step with another batch must find as much room.
TEST_F(OrderedFrees, PlacesTheBlocksOfALossWithoutAHole) {
  engine().AddSegment({kBase, 1024 * kMiB});
  ASSERT_TRUE(Ask(512 * kMiB));
  for (const uint64_t whole : {168 * kMiB, 160 * kMiB, 170 * kMiB}) {
    const Address half = Serve(whole / 2);
    const Address copy = Serve(whole);
    const Address kept = Serve(whole);
    FreeAll({copy, half});
    const Address gradient = Serve(whole);
    const Address last = TryServe(whole);
    ASSERT_NE(last, 0u) << "three of " << whole << " bytes fit into 512 MiB";
    for (const Address block : {gradient, kept, last}) Free(block);
  }
}

// Ranks whose programs read statistics, or whose fences pass, at different moments.
TEST(SymmetricEngine, PlacesEquallyAfterAnyQuestionOfARank) {
  SymmetricEngine plain({}, FreeOrder::kOrdered);
  SymmetricEngine asked({}, FreeOrder::kOrdered);
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

TEST_F(DeferredFrees, NumbersAllocationsAnewInANewEpoch) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    engine().AddSegment({kBase, 8 * kMiB});
    Free(Serve(2 * kMiB));
    WaitForDevice();
    EXPECT_EQ(engine().LocallyFreed(), (std::vector<Sequence>{0})) << epoch;
    engine().ApplyFrees(engine().LocallyFreed());
    engine().RemoveSegment(0);
    engine().BeginEpoch();
  }
}

TEST_F(OrderedFrees, KeepsSmallBlocksAwayFromLargeOnes) {
  engine().AddSegment({kBase, 64 * kMiB});
  EXPECT_EQ(Serve(512), kBase);
  const Address large = Serve(4 * kMiB);
  EXPECT_EQ(large, kBase + 60 * kMiB);
  EXPECT_EQ(Serve(kMiB), kBase + 512);
  Free(large);
  EXPECT_TRUE(engine().CanServe(62 * kMiB));
}

TEST_F(DeferredFreesOfOneSegment, RefusesASecondFreeOfADeferredBlock) {
  const Address address = Serve(1000);
  Free(address);
  ExpectFailure(engine().Free(address).status(), StatusCode::kNotFound, "freed already");
  ExpectFailure(engine().Free(address).status(), StatusCode::kNotFound, "0x7f0000000000");
  EXPECT_EQ(engine().RecordStream(address, 2).code(), StatusCode::kNotFound);
  EXPECT_EQ(engine().Free(0x10).status().code(), StatusCode::kNotFound);
}

TEST_F(DeferredFreesOfOneSegment, OffersADeferredFreeOnceItsFencesHaveCome) {
  const Address address = Serve(2 * kMiB);
  Record(address, 2);
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{2}));
  EXPECT_TRUE(engine().LocallyFreed().empty());
  Attach(kOther, 11);
  EXPECT_EQ(engine().LocallyFreed(), (std::vector<Sequence>{0}));
  engine().ApplyFrees({0});
  EXPECT_EQ(Ask(512, 3)->waits, (Waits{{1, kNoFence}, {2, 11}}));
  engine().FencePassed(11);
  EXPECT_EQ(Ask(512, 3)->waits, (Waits{{1, kNoFence}}));
}

TEST_F(OrderedFreesOfOneSegment, TakesOrderedFreesAtOnce) {
  Free(Serve(2 * kMiB));
  EXPECT_EQ(Ask(2 * kMiB, 2)->waits, (Waits{{1, kNoFence}}));
  EXPECT_TRUE(engine().LocallyFreed().empty());
}

TEST_F(OrderedFreesOfOneSegment, ServesAnOrderedFreeBeforeItsFenceComes) {
  const Address address = Serve(2 * kMiB);
  Record(address, 2);
  EXPECT_EQ(Free(address), (std::vector<StreamKey>{2}));
  EXPECT_EQ(Ask(kMiB, 3)->waits, (Waits{{1, kNoFence}, {2, kNoFence}}));
  Attach(kOther, 11);
  EXPECT_EQ(engine().PendingFences(), (std::vector<Fence>{11}));
  engine().FencePassed(11);
  EXPECT_TRUE(engine().PendingFences().empty());
}

TEST_F(OrderedFreesOfOneSegment, MergesWithAnyUses) {
  const Address low = Serve(kMiB, 1);
  const Address high = Serve(kMiB, 2);
  FreeAll({low, high});
  EXPECT_EQ(Ask(2 * kMiB, 3)->waits, (Waits{{1, kNoFence}, {2, kNoFence}}));
}

TEST_F(OrderedFreesOfOneSegment, DropsUsesWhenTheDeviceIsIdleOrAStreamForgotten) {
  Free(Serve(kMiB, 1));
  engine().ForgetStream(1);
  const Address address = Serve(2 * kMiB, 2);
  EXPECT_FALSE(engine().IsIdle(0));
  Free(address);
  EXPECT_FALSE(engine().IsIdle(0));
  EXPECT_TRUE(engine().heap().IsWhollyFree(0));
  WaitForDevice();
  EXPECT_TRUE(engine().IsIdle(0));
  EXPECT_EQ(engine().RemoveSegment(0).address, kBase);
  EXPECT_EQ(engine().SegmentsEver(), 1u);
}

TEST_F(OrderedFreesOfOneSegment, HashesWhatRanksMustShare) {
  const Address address = Serve(1000);
  Ask(4 * kMiB);
  Free(address);
  engine().NoteCollective(SequenceCall::kReserve, kMiB);
  EXPECT_FALSE(engine().Allocate(0, 1).ok());
  ASSERT_EQ(engine().log().count(), 4u);
  EXPECT_EQ(Describe(*engine().log().Entry(0)), "allocate 1,000 bytes (call 0)");
  EXPECT_EQ(Describe(*engine().log().Entry(1)), "refused allocation of 4,194,304 bytes (call 1)");
  EXPECT_EQ(Describe(*engine().log().Entry(2)), "free of block 0 (call 2)");
  EXPECT_EQ(Describe(*engine().log().Entry(3)), "reserve 1,048,576 bytes (call 3)");
}

TEST(SymmetricEngine, HashesTheValueOfEveryCollectiveCall) {
  for (const SequenceCall call : {SequenceCall::kReserve, SequenceCall::kReclaim, SequenceCall::kTrim,
                                  SequenceCall::kRegister, SequenceCall::kDeregister}) {
    const auto hash = [&](uint64_t bytes) {
      SymmetricEngine engine({}, FreeOrder::kDeferred);
      engine.NoteCollective(call, bytes);
      return engine.log().hash();
    };
    EXPECT_EQ(hash(2 * kMiB), hash(2 * kMiB));
    EXPECT_NE(hash(2 * kMiB), hash(4 * kMiB)) << Describe({0, call, 2 * kMiB});
  }
}

TEST_F(DeferredFreesOfOneSegment, KeepsDeferredFreesOutOfTheHash) {
  const Address address = Serve(1000);
  const uint64_t hash = engine().log().hash();
  Free(address);
  EXPECT_EQ(engine().log().hash(), hash);
}

TEST_F(OrderedFreesOfOneSegment, CountsAndFindsLikeAnyEngine) {
  Free(Serve(1000));
  Ask(100);
  EXPECT_EQ(counters().requested_bytes.current, 100u);
  EXPECT_EQ(engine().Find(kBase + 100)->requested_bytes, 100u);
  engine().ResetPeaks();
  EXPECT_EQ(counters().requested_bytes.peak, 100u);
}

using SymmetricEngineDeathTest = DeferredFreesOfOneSegment;

TEST_F(SymmetricEngineDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(SymmetricEngine({.alignment = 512, .granularity = 1000}, FreeOrder::kOrdered), "no multiple");
}

TEST_F(SymmetricEngineDeathTest, AbortsOnFreesThatThisRankDidNotOffer) {
  const Address address = Serve(1000);
  EXPECT_DEATH(engine().ApplyFrees({0}), "did not offer");
  Record(address, 2);
  Free(address);
  EXPECT_DEATH(engine().ApplyFrees({0}), "did not offer");
}

uint64_t HashOf(std::initializer_list<std::pair<SequenceCall, uint64_t>> calls) {
  SequenceLog log;
  for (const auto& [call, value] : calls) log.Append(call, value);
  return log.hash();
}

TEST(SequenceLog, AgreesForEqualCalls) {
  SequenceLog a;
  SequenceLog b;
  EXPECT_EQ(a.hash(), b.hash());
  for (uint64_t value = 0; value < 1000; ++value) {
    a.Append(SequenceCall::kAllocate, value);
    b.Append(SequenceCall::kAllocate, value);
    ASSERT_EQ(a.hash(), b.hash());
  }
  EXPECT_EQ(a.count(), 1000u);
}

TEST(SequenceLog, TellsValuesCallsAndOrderApart) {
  const uint64_t reference = HashOf({{SequenceCall::kAllocate, 1}, {SequenceCall::kAllocate, 2}});
  EXPECT_NE(reference, HashOf({{SequenceCall::kAllocate, 2}, {SequenceCall::kAllocate, 1}}));
  EXPECT_NE(reference, HashOf({{SequenceCall::kAllocate, 1}, {SequenceCall::kRefused, 2}}));
  EXPECT_NE(reference, HashOf({{SequenceCall::kAllocate, 1}, {SequenceCall::kAllocate, 3}}));
  EXPECT_NE(reference, HashOf({{SequenceCall::kAllocate, 1}}));
  EXPECT_NE(HashOf({{SequenceCall::kAllocate, 0}}), HashOf({}));
}

TEST(SequenceLog, SeparatesThousandsAlone) {
  EXPECT_EQ(Describe({0, SequenceCall::kAllocate, 100}), "allocate 100 bytes (call 0)");
  EXPECT_EQ(Describe({0, SequenceCall::kAllocate, 100'000}), "allocate 100,000 bytes (call 0)");
}

// Otherwise two ranks whose calls differ in one bit could continue unnoticed.
TEST(SequenceLog, LetsEachBitOfAValueReachEachBitOfTheHash) {
  constexpr uint64_t kValues = 64;
  for (int bit = 0; bit < 64; ++bit) {
    uint64_t reached = 0;
    for (uint64_t value = 0; value < kValues; ++value) {
      reached |=
          HashOf({{SequenceCall::kAllocate, value}}) ^ HashOf({{SequenceCall::kAllocate, value ^ uint64_t{1} << bit}});
    }
    EXPECT_EQ(reached, ~uint64_t{0}) << "from bit " << bit;
  }
}

TEST(SequenceLog, TellsTheValuesOfEveryCallApart) {
  for (const SequenceCall call :
       {SequenceCall::kAllocate, SequenceCall::kRefused, SequenceCall::kFree, SequenceCall::kReserve,
        SequenceCall::kReclaim, SequenceCall::kTrim, SequenceCall::kRegister, SequenceCall::kDeregister}) {
    EXPECT_NE(HashOf({{call, 1}}), HashOf({{call, 2}})) << Describe({0, call, 1});
  }
}

TEST(SequenceLog, RemembersADifferenceForEver) {
  SequenceLog a;
  SequenceLog b;
  a.Append(SequenceCall::kAllocate, 512);
  b.Append(SequenceCall::kAllocate, 1024);
  for (int call = 0; call < 1000; ++call) {
    a.Append(SequenceCall::kFree, 0);
    b.Append(SequenceCall::kFree, 0);
    ASSERT_NE(a.hash(), b.hash());
  }
}

// Ranks may run different builds: the hash is part of what they exchange.
TEST(SequenceLog, GivesTheSameHashInEveryBuild) {
  SequenceLog log;
  EXPECT_EQ(log.hash(), 0x9e3779b97f4a7c15u);
  log.Append(SequenceCall::kAllocate, 65536);
  log.Append(SequenceCall::kReserve, uint64_t{1} << 30);
  EXPECT_EQ(log.hash(), 0xd43df906da4d0bffu);
}

TEST(SequenceLog, KeepsTheLastCalls) {
  SequenceLog log;
  EXPECT_EQ(log.Entry(0), std::nullopt);
  for (uint64_t value = 0; value < SequenceLog::kKept + 10; ++value) log.Append(SequenceCall::kTrim, value);
  EXPECT_EQ(log.Entry(9), std::nullopt);
  EXPECT_EQ(log.Entry(SequenceLog::kKept + 10), std::nullopt);
  for (uint64_t number = 10; number < SequenceLog::kKept + 10; ++number) {
    const std::optional<SequenceEntry> entry = log.Entry(number);
    ASSERT_TRUE(entry.has_value());
    EXPECT_EQ(entry->number, number);
    EXPECT_EQ(entry->value, number);
    EXPECT_EQ(entry->call, SequenceCall::kTrim);
  }
  EXPECT_EQ(log.Entry(log.count() - 1)->hash_after, log.hash());
}

TEST(SequenceLog, DescribesCalls) {
  const auto describe = [](SequenceCall call, uint64_t value) { return Describe({17, call, value, 0}); };
  EXPECT_EQ(describe(SequenceCall::kAllocate, 65536), "allocate 65,536 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kRefused, 1), "refused allocation of 1 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kFree, 100), "free of block 100 (call 17)");
  EXPECT_EQ(describe(SequenceCall::kReserve, 1048576), "reserve 1,048,576 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kReclaim, 0), "reclaim (call 17)");
  EXPECT_EQ(describe(SequenceCall::kTrim, 1000), "trim to 1,000 bytes (call 17)");
  EXPECT_EQ(describe(SequenceCall::kRegister, 2), "registration 2 (call 17)");
  EXPECT_EQ(describe(SequenceCall::kDeregister, 2), "deregistration 2 (call 17)");
}

}  // namespace
}  // namespace commpool::internal::engine
