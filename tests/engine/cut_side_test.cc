#include <gtest/gtest.h>

#include "src/library/base/bytes.h"
#include "src/library/engine/heap.h"

namespace commpool::internal::engine {
namespace {

// A free block in a segment of 1 GiB, between two blocks; no bytes is the segment's end.
class Gap {
 public:
  Gap(uint64_t below, uint64_t above) {
    segment_.range = {kGiB, kGiB};
    free_.segment = &segment_;
    free_.bytes = 512 * kMiB;
    below_.bytes = below;
    above_.bytes = above;
    if (below > 0) free_.previous = &below_;
    if (above > 0) free_.next = &above_;
  }
  Gap(const Gap&) = delete;
  Gap& operator=(const Gap&) = delete;

  CutSide For(uint64_t bytes) const { return CutSideFor(bytes, free_); }

 private:
  HeapSegment segment_;
  Block below_;
  Block above_;
  Block free_;
};

TEST(CutSide, LiesBesideABlockOfItsSize) {
  EXPECT_EQ(Gap(64 * kMiB, 8 * kMiB).For(64 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(64 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(90 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(8 * kMiB, 64 * kMiB).For(43 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(300 * kMiB, 0).For(300 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(0, 4096).For(4096), CutSide::kHigh);
}

TEST(CutSide, KeepsAwayFromBlocksOfAboutTwiceOrHalfTheSize) {
  EXPECT_EQ(Gap(64 * kMiB, 0).For(128 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(32 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(0, 64 * kMiB).For(32 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(128 * kMiB, 128 * kMiB + 512).For(256 * kMiB), CutSide::kLow) << "neither end, so by size";
}

TEST(CutSide, DependsOnTheSizeWhereNeitherNeighbourDecides) {
  EXPECT_EQ(Gap(64 * kMiB, 0).For(512), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 0).For(kMiB + 512), CutSide::kHigh);
  EXPECT_EQ(Gap(512, 0).For(170 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(512, 0).For(171 * kMiB), CutSide::kLow);
  EXPECT_EQ(Gap(64 * kMiB, 64 * kMiB).For(64 * kMiB), CutSide::kHigh);
  EXPECT_EQ(Gap(500 * kMiB, 0).For(64 * kMiB), CutSide::kHigh);
}

TEST(CutSide, PutsTheFirstBlockOfASegmentAtItsBeginning) {
  EXPECT_EQ(Gap(0, 0).For(512), CutSide::kLow);
  EXPECT_EQ(Gap(0, 0).For(64 * kMiB), CutSide::kLow);
}

}  // namespace
}  // namespace commpool::internal::engine
