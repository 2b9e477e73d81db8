#include "src/library/engine/size_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "src/library/base/bytes.h"
#include "src/library/engine/caching_engine.h"

namespace commpool::internal::engine {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kGranularity = 2 * kMiB;

std::optional<uint64_t> BlockBytes(uint64_t requested, uint64_t alignment) {
  return BlockBytesOf(requested, {.alignment = alignment});
}

std::optional<uint64_t> SegmentBytes(uint64_t block_bytes, uint64_t granularity, uint64_t minimum,
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
  EXPECT_EQ(BlockBytes(kMost, 512), std::nullopt);
  EXPECT_EQ(BlockBytes(kMost - 511, 512), kMost - 511);
}

TEST(SizePolicy, ChoosesSegmentsByTheRequest) {
  EXPECT_EQ(SegmentBytes(512, kGranularity, 0), 2 * kMiB);
  EXPECT_EQ(SegmentBytes(kMiB, kGranularity, 0), 2 * kMiB);
  EXPECT_EQ(SegmentBytes(kMiB + 512, kGranularity, 0), 8 * kMiB);
  EXPECT_EQ(SegmentBytes(4 * kMiB - 512, kGranularity, 0), 8 * kMiB);
  EXPECT_EQ(SegmentBytes(4 * kMiB, kGranularity, 0), 4 * kMiB);
  EXPECT_EQ(SegmentBytes(33 * kMiB + 512, kGranularity, 0), 34 * kMiB);
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
  EXPECT_EQ(SegmentBytes(kMost - 511, kGranularity, 0), std::nullopt);
  EXPECT_EQ(SegmentBytes(512, kGranularity, kMost), std::nullopt);
}

TEST(SizePolicy, RefusesRequestsOfNothingAndOfTooMuch) {
  const Result<RequestSizes> nothing = SizesOf(0, {});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.status().code(), StatusCode::kInvalidArgument);
  for (const uint64_t bytes : {kMost, kMost - 511, kMost - 2 * kMiB + 2}) {
    const Result<RequestSizes> sizes = SizesOf(bytes, {});
    ASSERT_FALSE(sizes.ok());
    EXPECT_EQ(sizes.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(sizes.status().message().find("exceed 64 bits"), std::string::npos);
  }
}

TEST(SizePolicy, AnswersBothSizesOfARequest) {
  const Result<RequestSizes> sizes = SizesOf(100, {.alignment = 256, .granularity = 4096, .segment_bytes = 0});
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes->block_bytes, 256u);
  EXPECT_EQ(sizes->segment_bytes, 2 * kMiB);
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
  EXPECT_FALSE(SizesOf(kMost, guarded).ok());
}

TEST(SizePolicyDeathTest, AbortsOnOptionsThatContradictThemselves) {
  EXPECT_DEATH(CachingEngine({.alignment = 48, .granularity = kGranularity}), "power of two");
  EXPECT_DEATH(CachingEngine({.alignment = 4096, .granularity = 512}), "multiple of the alignment");
  EXPECT_DEATH(CachingEngine({.alignment = 512, .granularity = 0}), "multiple of the alignment");
}

}  // namespace
}  // namespace commpool::internal::engine
