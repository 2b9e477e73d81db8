// Random operations on the engines of one device, each followed by CheckInvariants and held against the model. The
// expandable engine's have growths, whole and in steps, and the test's own book of pages checks it too.
#include <optional>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "src/library/engine/expandable_engine.h"
#include "tests/engine/modelled_engine.h"

namespace commpool::internal::engine {
namespace {

class EngineProperties : public ::testing::TestWithParam<uint64_t>, protected ModelledEngine<CachingEngine> {
 protected:
  EngineProperties() : ModelledEngine(CachingEngine({.alignment = Alignment(GetParam())}), GetParam(), 4) {}

  static uint64_t Alignment(uint64_t seed) { return seed % 2 == 0 ? 512 : 4096; }

  uint64_t AnySize() {
    const uint64_t kind = Below(8);
    if (kind == 0) return 1 + Below(8 * kMiB);
    return 1 + Below(kind <= 2 ? kMiB : 16 * kKiB);
  }

  void Allocate() {
    if (model_.live().size() >= 150) return FreeAny();
    const uint64_t bytes = AnySize();
    const StreamKey stream = AnyStream();
    const Reuse reuse = Below(2) == 0 ? Reuse::kSameStream : Reuse::kAnyStream;
    const Result<Grow> growth = engine_.GrowthFor(bytes, stream, reuse);
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    ASSERT_TRUE(outcome.ok() && growth.ok());
    if (const Grow* grow = std::get_if<Grow>(&*outcome)) {
      EXPECT_EQ(growth->bytes, grow->bytes);
      EXPECT_GE(grow->bytes, bytes);
      // Some segments touch, some do not.
      next_address_ += Below(2) * 64 * kMiB;
      engine_.AddSegment({next_address_, grow->bytes});
      next_address_ += grow->bytes;
      return;
    }
    EXPECT_EQ(growth->bytes, 0u);
    const Served& served = std::get<Served>(*outcome);
    EXPECT_EQ(served.bytes, RoundUp(bytes, Alignment(GetParam())));
    if (reuse == Reuse::kSameStream) {
      EXPECT_TRUE(served.waits.empty());
    }
    EXPECT_EQ(model_.Serve(served, bytes, stream), "");
  }

  // A wait for the device, with frees by others meanwhile.
  void WaitForDevice() {
    const Moment moment = engine_.Now();
    for (uint64_t frees = Below(8); frees > 0; --frees) FreeAny();
    DeviceIdle(moment);
  }

  void Step() {
    const uint64_t choice = Below(100);
    if (choice < 40) return Allocate();
    if (choice < 65) return FreeAny();
    if (choice < 80) return RecordAny();
    if (choice < 90) return AttachAnyFence();
    if (choice < 97) return PassAnyFence();
    if (choice < 99) return WaitForDevice();
    RemoveIdleSegments(engine_);
  }

  Address next_address_ = kGiB;
};

TEST_P(EngineProperties, HoldAfterEveryOperation) {
  for (int step = 0; step < 2500; ++step) {
    Step();
    CheckAgainstModel();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  ComeToRest();
  CheckInvariants(engine_);
  EXPECT_TRUE(engine_.PendingFences().empty());
  for (const BlockView& block : engine_.Snapshot()) EXPECT_EQ(block.state, COMMPOOL_BLOCK_FREE);
  RemoveIdleSegments(engine_);
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 0u) << "every segment is one idle block";
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineProperties, ::testing::Range(uint64_t{1}, uint64_t{7}));

constexpr uint64_t kPage = 2 * kMiB;
constexpr uint64_t kTerritoryPages = 48;

EngineOptions OptionsOf(uint64_t seed) {
  return {.spaces = Spaces::kApart,
          .choice = seed % 3 == 0 ? Choice::kBestFit : Choice::kFirstFit,
          .page_bytes = (uint64_t{1} << seed % 3) * kPage};
}

class ExpandableProperties : public ::testing::TestWithParam<uint64_t>, protected ModelledEngine<ExpandableEngine> {
 protected:
  ExpandableProperties() : ModelledEngine(ExpandableEngine(OptionsOf(GetParam())), GetParam(), 3) {}

  uint64_t AnySize() {
    const uint64_t kind = Below(5);
    if (kind <= 1) return 1 + Below(kind == 0 ? 64 * kKiB : kMiB);
    return kind == 2 ? kPage * (1 + Below(6)) : kMiB + Below(10 * kMiB);
  }

  // Whether free memory served the request.
  bool Serve(uint64_t bytes, StreamKey stream, Reuse reuse) {
    const Result<Outcome> outcome = engine_.Allocate(bytes, stream, reuse);
    EXPECT_TRUE(outcome.ok());
    if (const Grow* grow = std::get_if<Grow>(&*outcome)) {
      EXPECT_GE(grow->bytes, bytes);
      return false;
    }
    const Served& served = std::get<Served>(*outcome);
    EXPECT_TRUE(reuse == Reuse::kAnyStream || served.waits.empty());
    EXPECT_EQ(model_.Serve(served, bytes, stream), "");
    return true;
  }

  void Allocate() {
    if (model_.live().size() >= 60) return FreeAny();
    const uint64_t bytes = AnySize();
    const StreamKey stream = AnyStream();
    if (Serve(bytes, stream, Below(3) == 0 ? Reuse::kAnyStream : Reuse::kSameStream)) return;
    if (Below(2) == 0) {
      GrowAtOnce(bytes, stream);
    } else {
      wanted_bytes_ = bytes;
      wanted_stream_ = stream;
    }
  }

  // A wait for the device or for one stream, with frees by others meanwhile.
  void Wait() {
    const Moment moment = engine_.Now();
    for (uint64_t frees = Below(4); frees > 0; --frees) FreeAny();
    if (Below(2) == 0) return DeviceIdle(moment);
    const StreamKey stream = AnyStream();
    engine_.StreamIdle(stream, moment);
    model_.StreamIdle(stream, moment);
  }

  std::optional<Expansion> Plan(uint64_t bytes, StreamKey stream) {
    return PlanGrowth(
        engine_, bytes, stream, [&] { return static_cast<Donors>(Below(3)); },
        [&](const Grow&) {
          const SegmentRange range{next_territory_, kTerritoryPages * kPage};
          next_territory_ += range.bytes;  // they touch
          return range;
        });
  }

  bool Claim(const Expansion& plan) {
    if (!engine_.Claim(plan)) return false;
    uint64_t arriving = 0;
    for (const SegmentRange& range : plan.arriving) arriving += range.bytes;
    EXPECT_EQ(arriving, plan.moved_bytes() + plan.made_bytes());
    for (const PageMove& move : plan.moves) EXPECT_EQ(model_.TakeAway({move.from, move.bytes}), "");
    return true;
  }

  void Complete(const Expansion& plan) {
    engine_.Complete(plan);
    for (const PageMove& move : plan.moves) {
      EXPECT_EQ(pages_.erase(move.from), 1u);
      pages_[move.to] = move.bytes;
    }
    for (const SegmentRange& page : plan.made) pages_[page.address] = page.bytes;
  }

  // Nobody else does anything meanwhile, so the growth must serve its request.
  void GrowAtOnce(uint64_t bytes, StreamKey stream) {
    if (planned_ || claimed_ || !returning_.empty()) return;
    if (const std::optional<Expansion> plan = Plan(bytes, stream)) {
      EXPECT_TRUE(Claim(*plan));
      Complete(*plan);
    }
    EXPECT_TRUE(Serve(bytes, stream, Reuse::kSameStream) || Serve(bytes, stream, Reuse::kAnyStream));
  }

  // One step of a growth, or of a release of pages. At most one of both is in progress.
  void StepOfGrowth() {
    if (!returning_.empty()) return GiveBackOne();
    if (claimed_) return EndClaim();
    if (planned_) {
      if (Claim(*planned_)) claimed_ = planned_;
      planned_.reset();
      return;
    }
    if (Below(8) == 0) {
      returning_ = engine_.ClaimIdlePages(Below(16) * kPage);
      for (const SegmentRange& page : returning_) EXPECT_EQ(model_.TakeAway(page), "");
      return;
    }
    if (wanted_bytes_ > 0) planned_ = Plan(wanted_bytes_, wanted_stream_);
    wanted_bytes_ = 0;
  }

  void EndClaim() {
    const Expansion plan = *std::exchange(claimed_, std::nullopt);
    if (Below(4) > 0) return Complete(plan);
    const uint64_t lost = Below(plan.moves.size() + 1);
    for (uint64_t number = 0; number < lost; ++number) EXPECT_EQ(pages_.erase(plan.moves[number].from), 1u);
    FailGrowth(engine_, plan, lost);
  }

  void GiveBackOne() {
    const SegmentRange page = returning_.back();
    returning_.pop_back();
    if (Below(4) == 0) return engine_.UnclaimPage(page);
    engine_.RemovePage(page);
    pages_.erase(page.address);
  }

  void Step() {
    const uint64_t choice = Below(100);
    if (choice < 32) return Allocate();
    if (choice < 55) return FreeAny();
    if (choice < 63) return RecordAny();
    if (choice < 72) return AttachAnyFence();
    if (choice < 78) return PassAnyFence();
    if (choice < 82) return Wait();
    StepOfGrowth();
  }

  // Every byte of a live block has memory, and none of it is claimed.
  void CheckLiveBlocks() const {
    for (const auto& [address, block] : model_.live()) {
      for (Address at = address; at < address + block.bytes;) {
        const auto after = pages_.upper_bound(at);
        ASSERT_NE(after, pages_.begin());
        const auto& [page, bytes] = *std::prev(after);
        ASSERT_LT(at, page + bytes) << "a live block without memory";
        at = page + bytes;
      }
    }
    for (const SegmentRange& page : returning_) ASSERT_EQ(model_.TakeAway(page), "");
    if (!claimed_) return;
    for (const PageMove& move : claimed_->moves) ASSERT_EQ(model_.TakeAway({move.from, move.bytes}), "");
  }

  void Check() const {
    CheckAgainstModel();
    ASSERT_EQ(engine_.pages(), pages_);
    uint64_t reserved = 0;
    for (const auto& [address, bytes] : pages_) reserved += bytes;
    ASSERT_EQ(engine_.counters().reserved_bytes.current, reserved);
    ASSERT_EQ(engine_.counters().reserved_segments.current, pages_.size());
    CheckLiveBlocks();
  }

  Pages pages_;
  Address next_territory_ = kGiB;
  uint64_t wanted_bytes_ = 0;
  StreamKey wanted_stream_ = 0;
  std::optional<Expansion> planned_;
  std::optional<Expansion> claimed_;
  std::vector<SegmentRange> returning_;
};

TEST_P(ExpandableProperties, HoldAfterEveryOperation) {
  for (int step = 0; step < 1200; ++step) {
    Step();
    Check();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  if (claimed_) Complete(*claimed_);
  claimed_.reset();
  while (!returning_.empty()) GiveBackOne();
  ComeToRest();
  Check();
  for (const SegmentRange& page : engine_.ClaimIdlePages(UINT64_MAX)) engine_.RemovePage(page);
  EXPECT_TRUE(engine_.pages().empty()) << "every page is idle";
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 0u);
  CheckInvariants(engine_);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExpandableProperties, ::testing::Range(uint64_t{1}, uint64_t{25}));

}  // namespace
}  // namespace commpool::internal::engine
