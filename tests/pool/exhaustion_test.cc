#include "src/pool/symmetric/exhaustion.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"

namespace commpool::internal {
namespace {

const ExhaustedPool kSome{.requested_bytes = kMiB,
                          .needed_bytes = kMiB,
                          .reserved_bytes = 6 * kMiB,
                          .largest_free_block = 512 * kKiB,
                          .largest_segment = 4 * kMiB};

TEST(Exhaustion, SaysWhatToReserveAndWhatReclaimNeeds) {
  EXPECT_EQ(Describe(kSome),
            "has no free block of 1 MiB: 6 MiB are reserved, the largest free block is 512 KiB. On every rank: "
            "reserve(1048576), or reclaim() once every rank has freed 1048576 bytes in one piece");
}

TEST(Exhaustion, PromisesNothingOfReclaimWhereNoSegmentIsLargeEnough) {
  ExhaustedPool exhaustion = kSome;
  exhaustion.largest_segment = kMiB - 512;
  EXPECT_EQ(Describe(exhaustion).find("reclaim"), std::string::npos) << Describe(exhaustion);
  exhaustion.largest_segment = kMiB;
  EXPECT_NE(Describe(exhaustion).find("reclaim"), std::string::npos) << Describe(exhaustion);
}

TEST(Exhaustion, OfOrderedFreesHasNothingToReclaim) {
  ExhaustedPool exhaustion = kSome;
  exhaustion.frees = engine::FreeOrder::kOrdered;
  EXPECT_EQ(Describe(exhaustion).find("reclaim"), std::string::npos) << Describe(exhaustion);
}

}  // namespace
}  // namespace commpool::internal
