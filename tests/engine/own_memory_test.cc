// A request for the stream's own memory, without a list of waits, is placed, counted and closed like any other.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "tests/engine/engine_calls.h"
#include "tools/common/engine_invariants.h"

namespace commpool::internal::engine {
namespace {

constexpr Address kBase = 0x7f0000000000;
constexpr StreamKey kStream = 1;
constexpr StreamKey kOther = 2;

// Two engines with the same calls; one is asked for the stream's own memory.
class Twins {
 public:
  explicit Twins(const EngineOptions& options) : usual_(options), quick_(options) {}

  // The address, the same in both; 0 where both need more memory, which they then get.
  Address Allocate(uint64_t bytes, StreamKey stream) {
    const Address usual = AllocateUsually(usual_, bytes, stream);
    EXPECT_EQ(quick_.AllocateOwn(bytes, stream).address, usual);
    if (usual != 0) return usual;
    const SegmentRange segment{kBase + segments_++ * (uint64_t{1} << 32), RoundUp(bytes, 64 * kMiB)};
    usual_.AddSegment(segment);
    quick_.AddSegment(segment);
    return 0;
  }
  void Free(Address address) {
    const Result<Freed> freed = usual_.Free(address);
    ASSERT_TRUE(freed.ok());
    ASSERT_EQ(quick_.Free(address)->missing, freed->missing);
    for (const MissingFence& missing : freed->missing) {
      usual_.AttachFence(missing, ++fence_);
      quick_.AttachFence(missing, fence_);
    }
  }
  void Record(Address address, StreamKey stream) {
    EXPECT_TRUE(usual_.RecordStream(address, stream).ok());
    EXPECT_TRUE(quick_.RecordStream(address, stream).ok());
  }
  void PassFirstFence() {
    const std::vector<Fence> pending = usual_.PendingFences();
    ASSERT_EQ(quick_.PendingFences(), pending);
    if (pending.empty()) return;
    usual_.FencePassed(pending.front());
    quick_.FencePassed(pending.front());
  }
  void Check() const {
    CheckInvariants(quick_);
    const Counters usual = usual_.counters();
    const Counters quick = quick_.counters();
    EXPECT_EQ(quick.requested_bytes.current, usual.requested_bytes.current);
    EXPECT_EQ(quick.requested_bytes.total, usual.requested_bytes.total);
    EXPECT_EQ(quick.allocated_bytes.peak, usual.allocated_bytes.peak);
    EXPECT_EQ(quick.allocated_blocks.total, usual.allocated_blocks.total);
    EXPECT_EQ(quick.largest_free_block_bytes, usual.largest_free_block_bytes);
    EXPECT_EQ(quick.pending_bytes, usual.pending_bytes);
  }

 private:
  static Address AllocateUsually(CachingEngine& engine, uint64_t bytes, StreamKey stream) {
    const Result<Outcome> outcome = engine.Allocate(bytes, stream, Reuse::kSameStream);
    const Served* const served = outcome.ok() ? std::get_if<Served>(&*outcome) : nullptr;
    return served == nullptr ? 0 : served->address;
  }

  CachingEngine usual_;
  CachingEngine quick_;
  Fence fence_ = kNoFence;
  uint64_t segments_ = 0;
};

EngineOptions OptionsOf(Choice choice) {
  EngineOptions options;
  options.choice = choice;
  options.segment_bytes = 64 * kMiB;  // cut for blocks of any size
  return options;
}

class OwnMemory : public ::testing::TestWithParam<EngineOptions> {};

TEST_P(OwnMemory, IsPlacedAsWithWaits) {
  constexpr uint64_t kSizes[] = {2 * kMiB, 8 * kMiB, 8 * kMiB - 3, 11 * kMiB, 64 * kMiB, 3 * kMiB, 512};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Twins twins(GetParam());
    std::vector<Address> live;
    for (int call = 0; call < 1500; ++call) {
      const StreamKey stream = seed % 2 == 0 || random() % 4 != 0 ? kStream : kOther;
      const uint64_t choice = random() % 16;
      if (choice < 8) {
        if (const Address address = twins.Allocate(kSizes[random() % 7], stream)) live.push_back(address);
      } else if (!live.empty() && choice < 14) {
        const size_t place = random() % 3 == 0 ? random() % live.size() : live.size() - 1;
        twins.Free(live[place]);
        live.erase(live.begin() + static_cast<int64_t>(place));
      } else if (!live.empty() && choice == 14 && seed % 4 == 3) {
        twins.Record(live[random() % live.size()], kOther);
      } else {
        twins.PassFirstFence();
      }
      if (HasFatalFailure()) return;
      if (call % 50 == 0) twins.Check();
    }
    twins.Check();
  }
}

// Pairs of one block among all other calls.
TEST_P(OwnMemory, IsBookedAsWithWaits) {
  constexpr uint64_t kSizes[] = {2 * kMiB, 8 * kMiB, 8 * kMiB - 3, 24 * kMiB};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Twins twins(GetParam());
    std::vector<Address> live;
    for (int round = 0; round < 300; ++round) {
      const uint64_t bytes = kSizes[random() % 4];
      const StreamKey stream = random() % 8 == 0 ? kOther : kStream;
      for (uint64_t pair = random() % 6; pair > 0; --pair) {
        const Address address = twins.Allocate(bytes, stream);
        if (address != 0) twins.Free(address);
      }
      const Address kept = twins.Allocate(bytes, stream);
      if (kept != 0) live.push_back(kept);
      if (kept != 0 && seed % 2 == 0 && random() % 8 == 0) twins.Record(kept, kOther);
      if (random() % 2 == 0) twins.PassFirstFence();
      while (!live.empty() && random() % 2 == 0) {
        const size_t place = random() % live.size();
        twins.Free(live[place]);
        live.erase(live.begin() + static_cast<int64_t>(place));
      }
      if (HasFatalFailure()) return;
      if (round % 20 == 0) twins.Check();
    }
    twins.Check();
  }
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
