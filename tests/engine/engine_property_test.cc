// Random operations on the caching engine, each followed by CheckInvariants and held against the model.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "src/base/bytes.h"
#include "src/engine/caching_engine.h"
#include "tests/engine/model.h"

namespace commpool::internal::engine {
namespace {

constexpr int kSteps = 2500;
constexpr StreamKey kStreams = 4;
constexpr uint64_t kMostBlocks = 150;

struct OwedFence {
  Address address = 0;
  StreamKey stream = 0;
};

class EngineProperties : public ::testing::TestWithParam<uint64_t> {
 protected:
  EngineProperties() : random_(GetParam()), engine_({.alignment = Alignment(GetParam())}) {}

  static uint64_t Alignment(uint64_t seed) { return seed % 2 == 0 ? 512 : 4096; }
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  StreamKey AnyStream() { return 1 + Below(kStreams); }

  Address AnyLive() {
    auto block = model_.live().begin();
    std::advance(block, Below(model_.live().size()));
    return block->first;
  }

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
    if (model_.live().size() >= kMostBlocks) return Free();
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

  void Free() {
    if (model_.live().empty()) return;
    const Address address = AnyLive();
    const Result<Freed> freed = engine_.Free(address);
    ASSERT_TRUE(freed.ok());
    EXPECT_EQ(freed->streams_to_fence, model_.Free(address, engine_.Now()));
    for (const StreamKey stream : freed->streams_to_fence) owed_.push_back({address, stream});
    EXPECT_FALSE(engine_.Free(address).ok());
  }

  void RecordStream() {
    if (model_.live().empty()) return;
    const Address address = AnyLive();
    const StreamKey stream = AnyStream();
    ASSERT_TRUE(engine_.RecordStream(address, stream).ok());
    model_.Record(address, stream);
  }

  void AttachFence() {
    if (owed_.empty()) return;
    const uint64_t place = Below(owed_.size());
    const OwedFence owed = owed_[place];
    owed_.erase(owed_.begin() + static_cast<int64_t>(place));
    engine_.AttachFence(owed.address, owed.stream, ++last_fence_);
    model_.Attach(owed.address, owed.stream, last_fence_);
  }

  void PassFence() {
    const std::vector<Fence> pending = engine_.PendingFences();
    EXPECT_TRUE(std::is_sorted(pending.begin(), pending.end()));
    if (pending.empty()) return;
    const Fence fence = pending[Below(pending.size())];
    engine_.FencePassed(fence);
    model_.FencePassed(fence);
  }

  // A wait for the device, with frees by others meanwhile.
  void WaitForDevice() {
    const Moment moment = engine_.Now();
    for (uint64_t frees = Below(8); frees > 0; --frees) Free();
    engine_.DeviceIdle(moment);
    model_.DeviceIdle(moment);
  }

  void Trim() {
    for (const SegmentIndex segment : engine_.WhollyFreeSegments()) {
      if (engine_.IsIdle(segment)) engine_.RemoveSegment(segment);
    }
  }

  void Step() {
    const uint64_t choice = Below(100);
    if (choice < 40) return Allocate();
    if (choice < 65) return Free();
    if (choice < 80) return RecordStream();
    if (choice < 90) return AttachFence();
    if (choice < 97) return PassFence();
    if (choice < 99) return WaitForDevice();
    Trim();
  }

  std::mt19937_64 random_;
  CachingEngine engine_;
  Model model_;
  std::vector<OwedFence> owed_;
  Fence last_fence_ = 0;
  Address next_address_ = kGiB;
};

TEST_P(EngineProperties, HoldAfterEveryOperation) {
  for (int step = 0; step < kSteps; ++step) {
    Step();
    engine_.CheckInvariants();
    ASSERT_FALSE(HasFailure()) << "step " << step;
    const Counters counters = engine_.counters();
    ASSERT_EQ(counters.allocated_blocks.current, model_.live().size()) << "step " << step;
    ASSERT_EQ(counters.allocated_bytes.current, model_.LiveBytes()) << "step " << step;
    ASSERT_EQ(counters.free_bytes + counters.allocated_bytes.current, counters.reserved_bytes.current);
  }
  while (!model_.live().empty()) Free();
  while (!owed_.empty()) AttachFence();
  engine_.DeviceIdle(engine_.Now());
  engine_.CheckInvariants();
  EXPECT_TRUE(engine_.PendingFences().empty());
  for (const BlockView& block : engine_.Snapshot()) EXPECT_EQ(block.state, BlockView::State::kFree);
  Trim();
  EXPECT_EQ(engine_.counters().reserved_bytes.current, 0u) << "every segment is one idle block";
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineProperties, ::testing::Range(uint64_t{1}, uint64_t{7}));

}  // namespace
}  // namespace commpool::internal::engine
