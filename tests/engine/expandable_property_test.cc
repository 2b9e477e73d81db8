// Random operations on the expandable engine, with growths, whole and in steps. CheckInvariants, the model and the
// test's own book of pages check it after each.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/expandable_engine.h"
#include "tests/engine/growth_steps.h"
#include "tests/engine/modelled_engine.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr int kSteps = 1200;
constexpr StreamKey kStreams = 3;
constexpr uint64_t kMostBlocks = 60;
constexpr uint64_t kPage = 2 * kMiB;
constexpr uint64_t kTerritoryPages = 48;

EngineOptions OptionsOf(uint64_t seed) {
  EngineOptions options;
  options.spaces = Spaces::kApart;
  options.choice = seed % 3 == 0 ? Choice::kBestFit : Choice::kFirstFit;
  options.page_bytes = (uint64_t{1} << seed % 3) * kPage;
  return options;
}

class ExpandableProperties : public ::testing::TestWithParam<uint64_t>, protected ModelledEngine<ExpandableEngine> {
 protected:
  ExpandableProperties() : ModelledEngine(ExpandableEngine(OptionsOf(GetParam())), GetParam(), kStreams) {}

  uint64_t AnySize() {
    switch (Below(5)) {
      case 0:
        return 1 + Below(64 * kKiB);
      case 1:
        return 1 + Below(kMiB);
      case 2:
        return kPage * (1 + Below(6));
      default:
        return kMiB + Below(10 * kMiB);
    }
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
    if (model_.live().size() >= kMostBlocks) return FreeAny();
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
    const std::optional<Expansion> plan = Plan(bytes, stream);
    if (plan) {
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
    const Counters counters = engine_.counters();
    uint64_t reserved = 0;
    for (const auto& [address, bytes] : pages_) reserved += bytes;
    ASSERT_EQ(counters.reserved_bytes.current, reserved);
    ASSERT_EQ(counters.reserved_segments.current, pages_.size());
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
  for (int step = 0; step < kSteps; ++step) {
    Step();
    Check();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  if (claimed_) Complete(*claimed_);
  claimed_.reset();
  while (!returning_.empty()) GiveBackOne();
  while (!model_.live().empty()) FreeAny();
  while (!missing_.empty()) AttachAnyFence();
  DeviceIdle(engine_.Now());
  Check();
  for (const SegmentRange& page : engine_.ClaimIdlePages(UINT64_MAX)) engine_.RemovePage(page);
  EXPECT_TRUE(engine_.pages().empty()) << "every page is idle";
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 0u);
  CheckInvariants(engine_);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExpandableProperties, ::testing::Range(uint64_t{1}, uint64_t{25}));

}  // namespace
}  // namespace commpool::internal::engine
