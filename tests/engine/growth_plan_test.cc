// Growth as a plan: its steps, their order, and the questions before.
#include <random>

#include "src/library/engine/expandable_engine.h"
#include "tests/engine/engine_fixture.h"

namespace commpool::internal::engine {
namespace {

using Kind = GrowthStep::Kind;
using Kinds = std::vector<Kind>;

Kinds KindsOf(const GrowthPlan& plan) {
  Kinds kinds;
  for (const GrowthStep& step : plan.steps) kinds.push_back(step.kind);
  return kinds;
}

class FixedPlans : public EngineTest<CachingEngine> {
 protected:
  FixedPlans() : EngineTest(FixedOptions()) {}

  // Every stream is done when it is asked.
  GrowthPlan PlanFor(GrowthRequest request) {
    GrowthPlan plan = engine().PlanGrowth(request).value();
    if (!plan.again) return plan;
    EXPECT_EQ(KindsOf(plan), Kinds{Kind::kAsk});
    EXPECT_TRUE(request.asked);
    WaitForDevice();
    return engine().PlanGrowth(request).value();
  }
  GrowthPlan PlanFor(uint64_t bytes) { return PlanFor({.bytes = bytes, .stream = kStream}); }
  void CarryOut(const GrowthPlan& plan) {
    for (const GrowthStep& step : plan.steps) {
      if (step.kind == Kind::kRelease) {
        EXPECT_EQ(engine().RemoveSegment(step.segment).bytes, step.range.bytes);
      } else {
        engine().AddSegment({next_, step.range.bytes}, step.space, step.part);
        next_ += uint64_t{1} << 40;
      }
    }
  }
  Address Allocate(uint64_t bytes) {
    if (const Address address = TryServe(bytes)) return address;
    CarryOut(PlanFor(bytes));
    return Serve(bytes);
  }

  Address next_ = kBase;
};

TEST_F(FixedPlans, AskWhichStreamsAreDoneBeforeASegmentIsMade) {
  engine().AddSegment({kBase, 8 * kMiB});
  Free(Serve(8 * kMiB, kOther));
  GrowthRequest request{.bytes = 8 * kMiB, .stream = kStream};
  EXPECT_EQ(KindsOf(engine().PlanGrowth(request).value()), (Kinds{Kind::kAsk}));
  engine().StreamIdle(kOther, engine().Now());
  const GrowthPlan plan = engine().PlanGrowth(request).value();
  EXPECT_TRUE(plan.steps.empty() && !plan.again) << "free memory serves now";
}

TEST_F(FixedPlans, AskNobodyInACaptureAndForReserve) {
  for (GrowthRequest request : {GrowthRequest{.bytes = kMiB, .stream = kStream, .capturing = true},
                                GrowthRequest{.bytes = kMiB, .stream = kStream, .effort = Effort::kReserve},
                                GrowthRequest{.bytes = kMiB, .stream = kStream, .part = 7}}) {
    const GrowthPlan plan = engine().PlanGrowth(request).value();
    EXPECT_EQ(KindsOf(plan), (Kinds{Kind::kMakeSegment}));
    EXPECT_EQ(plan.steps[0].part, request.part);
    EXPECT_EQ(plan.steps[0].range.bytes, 2 * kMiB);
  }
}

TEST_F(FixedPlans, PutASegmentInThePlaceOfFreeOnesThatAreNoLargerTogether) {
  std::vector<Address> blocks;
  for (const uint64_t bytes : {10 * kMiB, 12 * kMiB, 20 * kMiB, 8 * kMiB}) blocks.push_back(Allocate(bytes));
  for (const size_t block : {1, 0, 2}) Free(blocks[block]);
  const GrowthPlan plan = PlanFor(30 * kMiB);
  EXPECT_EQ(KindsOf(plan), (Kinds{Kind::kRelease, Kind::kRelease, Kind::kMakeSegment}));
  EXPECT_EQ(plan.steps[0].segment, 1u) << "left alone for longest";
  EXPECT_EQ(plan.steps[1].segment, 0u);
  EXPECT_EQ(plan.steps[2].range.bytes, 30 * kMiB);
}

TEST_F(FixedPlans, LeaveSegmentsThatStreamsMayUseAndThoseThatArePinned) {
  const Address pinned = Allocate(10 * kMiB);
  const Address busy = Allocate(12 * kMiB);
  Free(pinned);
  GrowthRequest request{.bytes = 30 * kMiB, .stream = kStream};
  request.pinned = [](SegmentIndex segment) { return segment == 0; };
  EXPECT_TRUE(engine().PlanGrowth(request)->again);
  WaitForDevice();
  Free(busy);
  EXPECT_EQ(KindsOf(engine().PlanGrowth(request).value()), (Kinds{Kind::kMakeSegment}));
}

// Pages of 4 KiB: a small block is larger than its request, and its segment may be no larger than the block.
TEST_F(FixedPlans, OfSmallPagesMakeRoomForTheBlockAndNotForTheRequestAlone) {
  for (uint64_t bytes = kKiB; bytes <= kMiB; bytes += 12 * kKiB) {
    Restart(EngineOptions{.granularity = 4 * kKiB});
    const GrowthStep step = PlanFor(bytes).steps.back();
    engine().AddSegment({kBase, step.least_bytes}, step.space);
    EXPECT_TRUE(Ask(bytes)) << bytes;
  }
}

TEST_F(FixedPlans, LeaveWhatReserveMade) {
  Free(Allocate(10 * kMiB));
  engine().SetReserved(true);
  EXPECT_EQ(KindsOf(PlanFor(30 * kMiB)), (Kinds{Kind::kMakeSegment}));
  engine().SetReserved(false);
  EXPECT_EQ(KindsOf(PlanFor(30 * kMiB)), (Kinds{Kind::kRelease, Kind::kMakeSegment}));
}

TEST_F(FixedPlans, GiveBackMoreWhereTheDevicesPoolsHoldTooMuch) {
  std::vector<Address> blocks;
  for (int block = 0; block < 3; ++block) blocks.push_back(Allocate(20 * kMiB));
  for (const Address block : blocks) Free(block);
  GrowthRequest request{.bytes = 22 * kMiB, .stream = kStream, .held_bytes = 60 * kMiB, .most_unused = 50 * kMiB};
  EXPECT_EQ(request.Excess(22 * kMiB), 32 * kMiB);
  EXPECT_EQ(KindsOf(PlanFor(request)), (Kinds{Kind::kRelease, Kind::kRelease, Kind::kMakeSegment}));
  request.most_unused = UINT64_MAX;
  EXPECT_EQ(request.Excess(22 * kMiB), 0u);
  EXPECT_EQ(KindsOf(PlanFor(request)), (Kinds{Kind::kRelease, Kind::kMakeSegment}));
}

TEST_F(FixedPlans, MakeSegmentsOfAPartOfThePoolAndLessWhereThereIsNoRoom) {
  Allocate(2 * kGiB);
  const GrowthPlan plan = PlanFor(3 * kMiB);
  EXPECT_EQ(plan.steps[0].range.bytes, 8 * kMiB) << "a 256th, as it happens";
  EXPECT_EQ(plan.steps[0].least_bytes, 4 * kMiB);
  Allocate(2 * kGiB);
  EXPECT_EQ(PlanFor(3 * kMiB).steps[0].range.bytes, 16 * kMiB);
  EXPECT_EQ(PlanFor(kKiB).steps[0].range.bytes, 16 * kMiB);
  EXPECT_EQ(PlanFor(kKiB).steps[0].least_bytes, 2 * kMiB);
}

TEST_F(FixedPlans, OfOneSizeMakeTheSegmentsThatTheProgramAskedFor) {
  EngineOptions options = FixedOptions();
  options.segment_bytes = 4 * kMiB;
  Restart(options);
  Allocate(4 * kGiB);
  EXPECT_EQ(PlanFor(kKiB).steps[0].range.bytes, 4 * kMiB);
  EXPECT_EQ(PlanFor(kKiB).steps[0].least_bytes, 4 * kMiB);
}

// The pool releases segments only for one of at least their size. So the reserved bytes never fall, and it stops
// growing.
TEST_F(FixedPlans, ComeToRestWhereStepsAreAlike) {
  checks_each_call_ = false;
  const auto step = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Address> live;
    for (int call = 0; call < 400; ++call) {
      if (live.size() > 40 || (!live.empty() && random() % 3 == 0)) {
        const size_t place = random() % live.size();
        Free(live[place]);
        live.erase(live.begin() + static_cast<long>(place));
      } else {
        live.push_back(Allocate((1 + random() % 64) << (10 + random() % 12)));
      }
    }
    for (const Address address : live) Free(address);
  };
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    uint64_t segments = 0;
    int steps = 0;
    for (; steps < 200 && segments != counters().reserved_segments.total; ++steps) {
      const uint64_t reserved = Reserved();
      segments = counters().reserved_segments.total;
      step(seed);
      EXPECT_GE(Reserved(), reserved);
    }
    EXPECT_LT(steps, 200) << "seed " << seed;
  }
}

class PagePlans : public EngineTest<ExpandableEngine> {
 protected:
  static constexpr uint64_t kPage = 2 * kMiB;

  PagePlans() : EngineTest(Options()) {}

  static EngineOptions Options() {
    EngineOptions options = ExpandableOptions();
    options.page_bytes = kPage;
    return options;
  }
  // With addresses, where it lacks some.
  GrowthPlan PlanFor(GrowthRequest& request) {
    GrowthPlan plan = engine().PlanGrowth(request).value();
    if (KindsOf(plan) != Kinds{Kind::kAddAddresses}) return plan;
    EXPECT_TRUE(plan.again && !request.asked);
    engine().AddTerritory({next_, uint64_t{1} << 40}, plan.steps[0].space);
    next_ += uint64_t{2} << 40;
    return engine().PlanGrowth(request).value();
  }
  GrowthPlan PlanFor(uint64_t bytes) {
    GrowthRequest request{.bytes = bytes, .stream = kStream};
    return PlanFor(request);
  }
  Address Allocate(uint64_t bytes) {
    const GrowthPlan plan = PlanFor(bytes);
    EXPECT_FALSE(plan.again);
    EXPECT_TRUE(engine().Claim(plan.pages));
    engine().Complete(plan.pages);
    moved_bytes_ += plan.pages.moved_bytes();
    return Serve(bytes);
  }
  // On one stream, which is done whenever the pool asks.
  Address Replace(Address block, uint64_t bytes) {
    if (block != 0) Free(block);
    if (const Address address = TryServe(bytes)) return address;
    WaitForDevice();
    return Allocate(bytes);
  }

  Address next_ = kBase;
  uint64_t moved_bytes_ = 0;
};

// A program replaces 32 blocks at random, over and over: pages move at first, then the pool has grown.
TEST_F(PagePlans, ComeToRestWhereBlocksComeAndGoAtRandom) {
  checks_each_call_ = false;
  std::vector<Address> blocks(32);
  for (int pass = 0; pass < 10; ++pass) {
    std::mt19937_64 random(1);
    for (int call = 0; call < 1000; ++call) {
      Address& block = blocks[random() % blocks.size()];
      block = Replace(block, (1 + random() % 1023) << (10 + random() % 10));
    }
  }
  const uint64_t needed = counters().requested_bytes.peak;
  EXPECT_LT(moved_bytes_, 3 * needed);
  EXPECT_LT(Reserved(), needed + needed / 3);
  for (const Address block : blocks) Free(block);
}

TEST_F(PagePlans, MakeMemoryBeforeAnythingChanges) {
  const GrowthPlan plan = PlanFor(2 * kPage);
  EXPECT_EQ(KindsOf(plan), (Kinds{Kind::kMakePage, Kind::kMakePage, Kind::kMap, Kind::kMap, Kind::kOpen}));
  EXPECT_EQ(plan.steps[3].range.address, kBase + kPage);
  EXPECT_EQ(plan.steps[4].range.bytes, 2 * kPage);
}

TEST_F(PagePlans, MoveARowOfPagesOutInOneStep) {
  const Address idle = Allocate(3 * kPage);
  Allocate(kPage);
  Free(idle);
  WaitForDevice();
  const GrowthPlan plan = PlanFor(4 * kPage);
  EXPECT_EQ(KindsOf(plan),
            (Kinds{Kind::kMakePage, Kind::kMap, Kind::kUnmap, Kind::kMap, Kind::kMap, Kind::kMap, Kind::kOpen}));
  EXPECT_EQ(plan.steps[2].range.address, idle);
  EXPECT_EQ(plan.steps[2].pages, 3u);
}

TEST_F(PagePlans, WaitAMillisecondForEachMebibyteOfAGrowthThatBusyPagesWouldSpare) {
  const Address busy = Allocate(8 * kPage);
  Allocate(kPage);
  Free(busy);
  GrowthRequest request{.bytes = 12 * kPage, .stream = kStream};
  const GrowthPlan plan = PlanFor(request);
  EXPECT_EQ(KindsOf(plan), (Kinds{Kind::kAwait}));
  EXPECT_EQ(plan.steps[0].microseconds, 24'000u);
  EXPECT_EQ(engine().PlanGrowth(request)->pages.made_bytes(), 12 * kPage) << "asked once, it grows";
  EXPECT_EQ(PlanFor(kGiB).steps[0].microseconds, 100'000u) << "the work may depend on this host";
  GrowthRequest captured{.bytes = 12 * kPage, .stream = kStream, .capturing = true};
  EXPECT_EQ(KindsOf(PlanFor(captured)), (Kinds{Kind::kAsk}));
}

TEST_F(PagePlans, WaitForTheDeviceUnderPressure) {
  Allocate(kPage);
  GrowthRequest request{.bytes = 4 * kPage, .stream = kStream, .effort = Effort::kPressure};
  EXPECT_EQ(KindsOf(PlanFor(request)), (Kinds{Kind::kAwaitDevice}));
  EXPECT_EQ(PlanFor(request).pages.made_bytes(), 4 * kPage);
}

TEST_F(PagePlans, MovePagesWhereTheLimitsLeaveNoRoomAndGrowWhereThePoolIsLazy) {
  const Address idle = Allocate(8 * kPage);
  Allocate(512 * kPage);
  Free(idle);
  WaitForDevice();
  GrowthRequest request{.bytes = 8 * kPage + kMiB, .stream = kStream, .room = kPage};
  EXPECT_EQ(PlanFor(request).pages.moved_bytes(), 8 * kPage);
  request.moves_eagerly = false;
  EXPECT_EQ(PlanFor(request).pages.moved_bytes(), 0u);
  request.held_bytes = 600 * kPage;
  request.most_unused = 600 * kPage;
  EXPECT_EQ(PlanFor(request).pages.moved_bytes(), 8 * kPage) << "what lies unused goes before more is held";
}

}  // namespace
}  // namespace commpool::internal::engine
