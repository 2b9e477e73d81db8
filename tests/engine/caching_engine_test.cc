// The engine of fixed pools. A request for the stream's own memory, without a list of waits, is placed, counted and
// closed like any other.
#include "src/library/engine/caching_engine.h"

#include <array>
#include <random>
#include <type_traits>

#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

class CachingEngineTest : public EngineTest<CachingEngine> {
 protected:
  CachingEngineTest() : EngineTest(EngineOptions()) {}

  // The bytes of the segment that a request asks for.
  uint64_t Wanted(uint64_t bytes, Reuse reuse = Reuse::kSameStream) {
    return std::get<Grow>(*engine().Allocate(bytes, kStream, reuse)).bytes;
  }
  void Free(Address address) { EXPECT_EQ(EngineTest::Free(address), std::vector<StreamKey>()); }
  // Two free neighbours that the stream may take at once, and that stay two blocks, because only one has a fence.
  void FreeApart(uint64_t bytes) {
    const Address low = Serve(bytes);
    const Address high = Serve(bytes, kOther);
    Record(high, kStream);
    Free(low);
    EngineTest::Free(high);
    Attach(kStream, Fence{11}, high);
    engine().StreamIdle(kOther, engine().Now());
    ASSERT_EQ(engine().Snapshot().size(), 2u);
  }
};

// It has a segment of 2 MiB at kBase.
class CachingEngineOfOneSegment : public CachingEngineTest {
 protected:
  CachingEngineOfOneSegment() { engine().AddSegment({kBase, 2 * kMiB}); }
};

TEST_F(CachingEngineTest, AsksForASegmentWhereNothingFits) {
  EXPECT_EQ(Wanted(60 * kKiB), 2 * kMiB);
  EXPECT_EQ(Wanted(3 * kMiB), 8 * kMiB);
  EXPECT_EQ(Wanted(61 * kMiB), 62 * kMiB);
  Restart(EngineOptions{.segment_bytes = kGiB});
  EXPECT_EQ(Wanted(1, Reuse::kAnyStream), kGiB);
}

TEST_F(CachingEngineTest, TellsTheGrowthThatARequestNeeds) {
  EXPECT_EQ(GrowthFor(60 * kKiB), 2 * kMiB);
  engine().AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(GrowthFor(60 * kKiB), 0u);
  EXPECT_EQ(GrowthFor(3 * kMiB, kStream, Reuse::kAnyStream), 8 * kMiB);
  EXPECT_EQ(engine().GrowthFor(0, kStream, Reuse::kAnyStream).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(CachingEngineTest, ServesSmallBlocksFromLargeSegmentsOnlyWhereItMayNotGrow) {
  Restart(EngineOptions{.spaces = Spaces::kApart});
  engine().AddSegment({kBase, 8 * kMiB});
  EXPECT_EQ(Wanted(60 * kKiB), 2 * kMiB);
  EXPECT_EQ(GrowthFor(60 * kKiB), 2 * kMiB);
  EXPECT_EQ(GrowthFor(60 * kKiB, kStream, Reuse::kSameStream, Part{1}), 0u);
  EXPECT_TRUE(Ask(60 * kKiB, kStream, Reuse::kAnyStream));
  EXPECT_TRUE(Ask(60 * kKiB, kStream, Reuse::kSameStream, Part{1}));
}

TEST_F(CachingEngineOfOneSegment, ServesManyBlocksFromOneSegment) {
  const Served first = Ask(1000).value();
  EXPECT_EQ(first.address, kBase);
  EXPECT_EQ(first.bytes, 1024u);
  EXPECT_TRUE(first.waits.empty());
  EXPECT_EQ(Serve(512), kBase + 1024);
}

TEST_F(CachingEngineTest, AlignsEveryBlock) {
  Restart(EngineOptions{.alignment = 4096});
  engine().AddSegment({kBase, 2 * kMiB});
  EXPECT_EQ(Serve(1), kBase);
  EXPECT_EQ(Serve(1), kBase + 4096);
}

TEST_F(CachingEngineOfOneSegment, ReusesAFreedBlockAtOnceOnItsStream) {
  const Address address = Serve(2 * kMiB);
  Free(address);
  EXPECT_EQ(Serve(2 * kMiB), address);
}

TEST_F(CachingEngineOfOneSegment, CountsBytesAndBlocks) {
  const Address low = Serve(1000);
  Serve(512);
  Free(low);
  const Counters books = counters();
  EXPECT_EQ(books.requested_bytes.current, 512u);
  EXPECT_EQ(books.requested_bytes.peak, 1512u);
  EXPECT_EQ(books.allocated_bytes.current, 512u);
  EXPECT_EQ(books.allocated_bytes.peak, 1536u);
  EXPECT_EQ(books.allocated_bytes.total, 1536u);
  EXPECT_EQ(books.allocated_blocks.current, 1u);
  EXPECT_EQ(books.allocated_blocks.total, 2u);
  EXPECT_EQ(books.reserved_bytes.current, 2 * kMiB);
  EXPECT_EQ(books.reserved_segments.current, 1u);
  EXPECT_EQ(books.free_bytes, 2 * kMiB - 512);
  EXPECT_EQ(books.largest_free_block_bytes, 2 * kMiB - 1536);
  EXPECT_EQ(books.pending_bytes, 0u);
  engine().ResetPeaks();
  EXPECT_EQ(counters().allocated_bytes.peak, 512u);
  EXPECT_EQ(counters().allocated_bytes.total, 1536u);
}

TEST_F(CachingEngineOfOneSegment, ShowsItsBlocksInOrder) {
  Serve(1000, 7);
  const std::vector<BlockView> views = engine().Snapshot();
  ASSERT_EQ(views.size(), 2u);
  EXPECT_EQ(views[0].state, COMMPOOL_BLOCK_LIVE);
  EXPECT_EQ(views[0].pointer, reinterpret_cast<void*>(kBase));
  EXPECT_EQ(views[0].bytes, 1024u);
  EXPECT_EQ(views[0].requested_bytes, 1000u);
  EXPECT_EQ(views[0].stream, 7u);
  EXPECT_EQ(views[1].state, COMMPOOL_BLOCK_FREE);
  EXPECT_EQ(views[1].bytes, 2 * kMiB - 1024);
}

TEST_F(CachingEngineOfOneSegment, ShowsWhichStreamUsedFreeMemoryLast) {
  Free(Serve(2 * kMiB, 7));
  Serve(kMiB, 7);
  ASSERT_EQ(engine().Snapshot().size(), 2u);
  EXPECT_EQ(engine().Snapshot()[1].stream, 7u) << "also of what is left of a block";
}

TEST_F(CachingEngineOfOneSegment, FindsTheLiveBlockOfAnAddress) {
  Serve(1000);
  ASSERT_TRUE(engine().Find(kBase + 999).ok());
  EXPECT_EQ(engine().Find(kBase + 999)->pointer, reinterpret_cast<void*>(kBase));
  EXPECT_EQ(engine().Find(kBase + 999)->segment, 0u);
  for (const Address address : {kBase - 1, kBase + 1024, kBase + 2 * kMiB, Address{0}}) {
    EXPECT_EQ(engine().Find(address).status().code(), StatusCode::kNotFound);
  }
}

TEST_F(CachingEngineOfOneSegment, GivesSegmentsBackThatAreIdle) {
  engine().AddSegment({2 * kBase, 2 * kMiB});
  const Address address = Serve(1000);
  EXPECT_EQ(engine().WhollyFreeSegments(), (std::vector<SegmentIndex>{1}));
  EXPECT_EQ(engine().RemoveSegment(1).address, 2 * kBase);
  Free(address);
  EXPECT_TRUE(engine().heap().IsWhollyFree(0));
  EXPECT_FALSE(engine().IsIdle(0)) << "the stream may still use the block";
  WaitForDevice();
  EXPECT_TRUE(engine().IsIdle(0));
  EXPECT_EQ(engine().RemoveSegment(0).bytes, 2 * kMiB);
  EXPECT_EQ(counters().reserved_bytes.current, 0u);
  EXPECT_EQ(counters().reserved_bytes.peak, 4 * kMiB);
  EXPECT_EQ(counters().reserved_segments.current, 0u);
  EXPECT_FALSE(engine().IsIdle(0));
  EXPECT_FALSE(engine().heap().IsWhollyFree(0));
}

// Four segments of one block each, touched in an order that differs from their numbers.
TEST_F(CachingEngineTest, NamesTheSegmentsThatWereFreedFirst) {
  std::vector<Address> blocks;
  for (uint64_t segment = 0; segment < 4; ++segment) {
    engine().AddSegment({kBase + segment * 32 * kMiB, 32 * kMiB});
    blocks.push_back(Serve(32 * kMiB));
  }
  for (const size_t segment : {2, 0, 3}) Free(blocks[segment]);
  EXPECT_EQ(engine().LongestUnusedSegments(), (std::vector<SegmentIndex>{2, 0, 3})) << "segment 1 is in use";
  Free(blocks[1]);
  EXPECT_EQ(engine().LongestUnusedSegments(), (std::vector<SegmentIndex>{2, 0, 3, 1}));

  const Address again = Serve(32 * kMiB);
  EXPECT_EQ(engine().LongestUnusedSegments().size(), 3u);
  Free(again);
  EXPECT_EQ(engine().LongestUnusedSegments().back(), (again - kBase) / (32 * kMiB)) << "it was used last";
}

TEST_F(CachingEngineTest, NamesTheFirstOfSegmentsThatNobodyEverUsed) {
  for (uint64_t segment = 0; segment < 4; ++segment) engine().AddSegment({kBase + segment * 4 * kMiB, 2 * kMiB});
  EXPECT_EQ(engine().LongestUnusedSegments(), (std::vector<SegmentIndex>{0, 1, 2, 3}));
}

TEST_F(CachingEngineOfOneSegment, LeavesMemoryAsItIsWhereARequestNeedsNoGrowth) {
  FreeApart(kMiB);
  EXPECT_EQ(GrowthFor(kMiB), 0u);
  EXPECT_EQ(engine().Snapshot().size(), 2u);
}

TEST_F(CachingEngineTest, NeedsNoGrowthForSmallBlocksThatFitIntoUnitedOnes) {
  Restart(EngineOptions{.spaces = Spaces::kApart});
  engine().SetReserved(true);
  engine().AddSegment({kBase, kMiB}, Space::kSmall);
  FreeApart(kMiB / 2);
  EXPECT_EQ(GrowthFor(kMiB), 0u);
}

TEST_F(CachingEngineTest, CutsFreeSegmentsForAnyRequestThatFits) {
  Restart(FixedOptions());
  engine().AddSegment({kBase, kGiB});
  engine().AddSegment({2 * kBase, 64 * kMiB});
  EXPECT_EQ(GrowthFor(16 * kMiB), 0u);
  EXPECT_EQ(Serve(16 * kMiB), 2 * kBase) << "the tightest fit";
  EXPECT_EQ(Serve(49 * kMiB), kBase);
}

TEST_F(CachingEngineOfOneSegment, NamesTheStreamsThatMayUseFreeMemory) {
  const Address freed = Serve(512, 5);
  Serve(512, 6);
  EXPECT_TRUE(engine().StreamsOf().empty());
  Free(freed);
  EXPECT_EQ(engine().StreamsOf(), (std::set<StreamKey>{5}));
}

using CachingEngineDeathTest = CachingEngineOfOneSegment;

TEST_F(CachingEngineDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(CachingEngine({.alignment = 512, .granularity = 1000}), "no multiple of the alignment");
}

TEST_F(CachingEngineOfOneSegment, RefusesZeroAndTooManyBytes) {
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, UINT64_MAX - kMiB}) {
    ExpectFailure(engine().Allocate(bytes, kStream, Reuse::kAnyStream).status(), StatusCode::kInvalidArgument,
                  std::to_string(bytes) + " bytes");
  }
  EXPECT_EQ(counters().allocated_blocks.total, 0u);
}

TEST_F(CachingEngineOfOneSegment, NamesTheLikelyCauseOfAWrongAddress) {
  const Address address = Serve(1000);
  const auto expect_cause = [&](Address wrong, const std::string& cause) {
    ExpectFailure(engine().Free(wrong).status(), StatusCode::kNotFound, cause);
    EXPECT_EQ(engine().RecordStream(wrong, 2).code(), StatusCode::kNotFound);
  };
  expect_cause(0, "not from this pool");
  expect_cause(0xabc, "0xabc");
  expect_cause(address + 8, "inside a live block of 1024 bytes at 0x7f0000000000");
  Free(address);
  expect_cause(address, "freed already");
}

TEST_F(CachingEngineOfOneSegment, KeepsItsBooksWhenItMoves) {
  const Address address = Serve(1000);
  CachingEngine moved = std::move(engine());
  CheckInvariants(moved);
  EXPECT_TRUE(moved.Free(address).ok());
  CheckInvariants(moved);
  Restart(EngineOptions());
}

TEST_F(CachingEngineDeathTest, AbortsWhereASegmentInUseIsRemoved) {
  const Address address = Serve(1000);
  EXPECT_DEATH(engine().RemoveSegment(0), "may still use");
  Free(address);
  EXPECT_DEATH(engine().RemoveSegment(0), "may still use");
  EXPECT_DEATH(engine().RemoveSegment(5), "unknown");
}

// Two engines with the same calls; one is asked for the stream's own memory.
class Twins {
 public:
  explicit Twins(const EngineOptions& options) : usual_(options), quick_(options) {}

  // The address, the same in both; 0 where both need more memory, which they then get.
  Address Allocate(uint64_t bytes, StreamKey stream) {
    const Result<Outcome> outcome = usual_.Allocate(bytes, stream, Reuse::kSameStream);
    const Served* const served = outcome.ok() ? std::get_if<Served>(&*outcome) : nullptr;
    const Address address = served == nullptr ? 0 : served->address;
    EXPECT_EQ(quick_.AllocateOwn(bytes, stream).address, address);
    if (address != 0) return address;
    const SegmentRange segment{kBase + segments_++ * (uint64_t{1} << 32), RoundUp(bytes, 64 * kMiB)};
    Both([&](CachingEngine& engine) { return engine.AddSegment(segment); });
    return 0;
  }
  void Free(Address address) {
    const auto missing = Both([&](CachingEngine& engine) { return engine.Free(address).value().missing; });
    for (const MissingFence& fence : missing) {
      ++fence_;
      Both([&](CachingEngine& engine) { return engine.AttachFence(fence, fence_); });
    }
  }
  void Record(Address address, StreamKey stream) {
    EXPECT_TRUE(Both([&](CachingEngine& engine) { return engine.RecordStream(address, stream).ok(); }));
  }
  void PassFirstFence() {
    const auto pending = Both([](CachingEngine& engine) { return engine.PendingFences(); });
    if (pending.empty()) return;
    usual_.FencePassed(pending.front());
    quick_.FencePassed(pending.front());
  }
  void Check() {
    CheckInvariants(quick_);
    Both([](CachingEngine& engine) {
      const Counters counters = engine.counters();
      return std::array{counters.requested_bytes.current,  counters.requested_bytes.total,
                        counters.allocated_bytes.peak,     counters.allocated_blocks.total,
                        counters.largest_free_block_bytes, counters.pending_bytes};
    });
  }

 private:
  // Both answer alike.
  template <typename Call>
  std::invoke_result_t<Call, CachingEngine&> Both(Call call) {
    const auto answer = call(usual_);
    EXPECT_EQ(call(quick_), answer);
    return answer;
  }

  CachingEngine usual_;
  CachingEngine quick_;
  Fence fence_ = kNoFence;
  uint64_t segments_ = 0;
};

// Segments of 64 MiB are cut for blocks of any size.
EngineOptions OptionsOf(Choice choice) { return {.choice = choice, .segment_bytes = 64 * kMiB}; }

class OwnMemory : public ::testing::TestWithParam<EngineOptions> {
 protected:
  // Plays with twins and their live blocks, 20 times; checks them at the end and after every so many rounds.
  template <typename Play>
  void PlayRounds(int rounds, int check_every, Play play) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::mt19937_64 random(seed);
      Twins twins(GetParam());
      std::vector<Address> live;
      for (int round = 0; round < rounds; ++round) {
        play(twins, live, random, seed);
        if (HasFailure()) return;
        if (round % check_every == 0) twins.Check();
      }
      twins.Check();
    }
  }
};

void FreeAt(Twins& twins, std::vector<Address>& live, size_t place) {
  twins.Free(live[place]);
  live.erase(live.begin() + static_cast<int64_t>(place));
}

TEST_P(OwnMemory, IsPlacedAsWithWaits) {
  constexpr uint64_t kSizes[] = {2 * kMiB, 8 * kMiB, 8 * kMiB - 3, 11 * kMiB, 64 * kMiB, 3 * kMiB, 512};
  PlayRounds(1500, 50, [&](Twins& twins, std::vector<Address>& live, std::mt19937_64& random, uint64_t seed) {
    const StreamKey stream = seed % 2 == 0 || random() % 4 != 0 ? kStream : kOther;
    const uint64_t choice = random() % 16;
    if (choice < 8) {
      if (const Address address = twins.Allocate(kSizes[random() % 7], stream)) live.push_back(address);
    } else if (!live.empty() && choice < 14) {
      FreeAt(twins, live, random() % 3 == 0 ? random() % live.size() : live.size() - 1);
    } else if (!live.empty() && choice == 14 && seed % 4 == 3) {
      twins.Record(live[random() % live.size()], kOther);
    } else {
      twins.PassFirstFence();
    }
  });
}

// Pairs of one block among all other calls.
TEST_P(OwnMemory, IsBookedAsWithWaits) {
  constexpr uint64_t kSizes[] = {2 * kMiB, 8 * kMiB, 8 * kMiB - 3, 24 * kMiB};
  PlayRounds(300, 20, [&](Twins& twins, std::vector<Address>& live, std::mt19937_64& random, uint64_t seed) {
    const uint64_t bytes = kSizes[random() % 4];
    const StreamKey stream = random() % 8 == 0 ? kOther : kStream;
    for (uint64_t pair = random() % 6; pair > 0; --pair) {
      if (const Address address = twins.Allocate(bytes, stream)) twins.Free(address);
    }
    if (const Address kept = twins.Allocate(bytes, stream)) {
      live.push_back(kept);
      if (seed % 2 == 0 && random() % 8 == 0) twins.Record(kept, kOther);
    }
    if (random() % 2 == 0) twins.PassFirstFence();
    while (!live.empty() && random() % 2 == 0) FreeAt(twins, live, random() % live.size());
  });
}

TEST_P(OwnMemory, RefusesImpossibleSizes) {
  CachingEngine engine(GetParam());
  engine.AddSegment({kBase, 64 * kMiB});
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_EQ(engine.AllocateOwn(bytes, kStream).bytes, 0u) << bytes;
  }
  EXPECT_EQ(engine.AllocateOwn(65 * kMiB, kStream).bytes, 0u) << "the pool has to grow";
  const SegmentRange block = engine.AllocateOwn(kMiB + 1, kStream);
  EXPECT_EQ(block.bytes, kMiB + 512);
  EXPECT_FALSE(engine.Free(block.address + 512).ok()) << "no block begins there";
  EXPECT_TRUE(engine.Free(block.address).ok());
  EXPECT_FALSE(engine.Free(block.address).ok()) << "it was freed";
  CheckInvariants(engine);
}

TEST_P(OwnMemory, OfSmallBlocksLiesAmongSmallOnes) {
  EngineOptions options = GetParam();
  options.spaces = Spaces::kApart;
  CachingEngine engine(options);
  engine.AddSegment({kBase, 64 * kMiB});
  EXPECT_EQ(engine.AllocateOwn(512, kStream).bytes, 0u) << "there is large memory alone";
  const SegmentRange large = engine.AllocateOwn(8 * kMiB, kStream);
  EXPECT_TRUE(engine.Free(large.address).ok());
  engine.AddSegment({kBase + 64 * kMiB, 2 * kMiB}, Space::kSmall);
  EXPECT_EQ(engine.AllocateOwn(512, kStream).address, kBase + 64 * kMiB);
  EXPECT_EQ(engine.AllocateOwn(kMiB, kStream).address, kBase + 64 * kMiB + 512);
  EXPECT_EQ(engine.AllocateOwn(8 * kMiB, kStream).address, large.address);
  CheckInvariants(engine);
}

INSTANTIATE_TEST_SUITE_P(Policies, OwnMemory,
                         ::testing::Values(OptionsOf(Choice::kBestFit), OptionsOf(Choice::kFirstFit)));

}  // namespace
}  // namespace commpool::internal::engine
