// Random operations on the caching engine, each followed by CheckInvariants and held against the model.
#include <gtest/gtest.h>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "tests/engine/modelled_engine.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr int kSteps = 2500;
constexpr StreamKey kStreams = 4;
constexpr uint64_t kMostBlocks = 150;

class EngineProperties : public ::testing::TestWithParam<uint64_t>, protected ModelledEngine<CachingEngine> {
 protected:
  EngineProperties() : ModelledEngine(CachingEngine({.alignment = Alignment(GetParam())}), GetParam(), kStreams) {}

  static uint64_t Alignment(uint64_t seed) { return seed % 2 == 0 ? 512 : 4096; }

  uint64_t AnySize() {
    switch (Below(8)) {
      case 0:
        return 1 + Below(8 * kMiB);
      case 1:
      case 2:
        return 1 + Below(kMiB);
      default:
        return 1 + Below(16 * kKiB);
    }
  }

  void Allocate() {
    if (model_.live().size() >= kMostBlocks) return FreeAny();
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
  for (int step = 0; step < kSteps; ++step) {
    Step();
    CheckAgainstModel();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  while (!model_.live().empty()) FreeAny();
  while (!missing_.empty()) AttachAnyFence();
  engine_.DeviceIdle(0, engine_.Now());
  CheckInvariants(engine_);
  EXPECT_TRUE(engine_.PendingFences().empty());
  for (const BlockView& block : engine_.Snapshot()) EXPECT_EQ(block.state, COMMPOOL_BLOCK_FREE);
  RemoveIdleSegments(engine_);
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 0u) << "every segment is one idle block";
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineProperties, ::testing::Range(uint64_t{1}, uint64_t{7}));

}  // namespace
}  // namespace commpool::internal::engine
