// The sizes of blocks and segments for a request. Every small size has the smallest class that holds it.
#include "src/library/engine/size_policy.h"

#include <algorithm>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"
#include "tests/base/expect_status.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kGranularity = 2 * kMiB;

std::optional<uint64_t> BlockBytes(uint64_t requested, uint64_t alignment) {
  return BlockBytesOf(requested, {.alignment = alignment});
}

std::optional<uint64_t> SegmentBytes(uint64_t block_bytes, uint64_t granularity = kGranularity, uint64_t minimum = 0,
                                     SegmentSizes sizes = SegmentSizes::kRoomy) {
  return engine::SegmentBytes(block_bytes,
                              {.granularity = granularity, .segment_sizes = sizes, .segment_bytes = minimum});
}

TEST(SizePolicy, RoundsBlocksUpToTheAlignment) {
  EXPECT_EQ(BlockBytes(1, 512), 512u);
  EXPECT_EQ(BlockBytes(512, 512), 512u);
  EXPECT_EQ(BlockBytes(513, 512), 1024u);
  EXPECT_EQ(BlockBytes(1, 4096), 4096u);
}

TEST(SizePolicy, RefusesBlocksThatOverflow) {
  EXPECT_EQ(BlockBytes(UINT64_MAX, 512), std::nullopt);
  EXPECT_EQ(BlockBytes(UINT64_MAX - 511, 512), UINT64_MAX - 511);
}

TEST(SizePolicy, ChoosesSegmentsByTheRequest) {
  EXPECT_EQ(SegmentBytes(512), 2 * kMiB);
  EXPECT_EQ(SegmentBytes(kMiB), 2 * kMiB);
  EXPECT_EQ(SegmentBytes(kMiB + 512), 8 * kMiB);
  EXPECT_EQ(SegmentBytes(4 * kMiB - 512), 8 * kMiB);
  EXPECT_EQ(SegmentBytes(4 * kMiB), 4 * kMiB);
  EXPECT_EQ(SegmentBytes(33 * kMiB + 512), 34 * kMiB);
  EXPECT_EQ(SegmentBytes(kMiB + 512, 4096, 0, SegmentSizes::kExact), kMiB + 4096);
  EXPECT_EQ(SegmentBytes(512, 4096, 0, SegmentSizes::kExact), 2 * kMiB) << "small blocks share segments";
}

TEST(SizePolicy, MakesSegmentsOfAtLeastTheMinimumAndWholeGranules) {
  EXPECT_EQ(SegmentBytes(512, kGranularity, 64 * kMiB), 64 * kMiB);
  EXPECT_EQ(SegmentBytes(512, kGranularity, 64 * kMiB + 1), 66 * kMiB);
  EXPECT_EQ(SegmentBytes(100 * kMiB, kGranularity, 64 * kMiB), 100 * kMiB);
  EXPECT_EQ(SegmentBytes(512, 512 * kMiB, 0), 512 * kMiB);
  EXPECT_EQ(SegmentBytes(12 * kMiB + 1, 3 * kMiB, 0), 15 * kMiB);
}

TEST(SizePolicy, RefusesSegmentsThatOverflow) {
  EXPECT_EQ(SegmentBytes(UINT64_MAX - 511), std::nullopt);
  EXPECT_EQ(SegmentBytes(512, kGranularity, UINT64_MAX), std::nullopt);
}

TEST(SizePolicy, RefusesRequestsOfNothingAndOfTooMuch) {
  EXPECT_EQ(SizesOf(0, {}).status().code(), StatusCode::kInvalidArgument);
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 511, UINT64_MAX - 2 * kMiB + 2}) {
    ExpectFailure(SizesOf(bytes, {}).status(), StatusCode::kInvalidArgument, "exceed 64 bits");
  }
}

TEST(SizePolicy, AnswersBothSizesOfARequest) {
  const RequestSizes sizes = SizesOf(100, {.alignment = 256, .granularity = 4096}).value();
  EXPECT_EQ(sizes.block_bytes, 256u);
  EXPECT_EQ(sizes.segment_bytes, 2 * kMiB);
}

TEST(SizePolicy, PutsBlocksUpToAMebibyteIntoTheirOwnSpace) {
  const EngineOptions apart{.spaces = Spaces::kApart};
  EXPECT_EQ(SizesOf(kMiB, apart)->space, Space::kSmall);
  EXPECT_EQ(SizesOf(kMiB + 1, apart)->space, Space::kLarge);
  EXPECT_EQ(SizesOf(kMiB, {})->space, Space::kLarge);
}

TEST(SizePolicy, LeavesAGuardBehindEachBlock) {
  const EngineOptions guarded{.spaces = Spaces::kApart, .guard_bytes = 1};
  EXPECT_EQ(SizesOf(1000, guarded)->block_bytes, 1024u);
  EXPECT_EQ(SizesOf(1024, guarded)->block_bytes, 1536u);
  EXPECT_EQ(SizesOf(2 * kMiB, guarded)->segment_bytes, 8 * kMiB);
  EXPECT_FALSE(SizesOf(UINT64_MAX, guarded).ok());
}

TEST(SizePolicyDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(CachingEngine({.alignment = 48, .granularity = kGranularity}), "power of two");
  EXPECT_DEATH(CachingEngine({.alignment = 4096, .granularity = 512}), "multiple of the alignment");
  EXPECT_DEATH(CachingEngine({.alignment = 512, .granularity = 0}), "multiple of the alignment");
}

TEST(SizeClasses, HoldEverySizeInTheLeastClass) {
  for (uint64_t bytes = 1; bytes <= kSmallBytes; ++bytes) {
    const SizeClass size_class = ClassOf(bytes);
    ASSERT_LT(size_class, kSizeClasses) << bytes;
    ASSERT_GE(ClassBytes(size_class), bytes);
    ASSERT_TRUE(size_class == 0 || ClassBytes(size_class - 1) < bytes) << bytes;
  }
}

TEST(SizeClasses, WasteLessThanAUnitOrAThirtySecond) {
  for (uint64_t bytes = 1; bytes <= kSmallBytes; ++bytes) {
    ASSERT_LT(ClassBytes(ClassOf(bytes)) - bytes, std::max(kClassUnit, bytes / 32 + 1)) << bytes;
  }
}

}  // namespace
}  // namespace commpool::internal::engine
