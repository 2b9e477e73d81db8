// How large the elements of an array are.
#include "src/interpose/audit/array_accounts.h"

#include <gtest/gtest.h>

namespace commpool::audit {
namespace {

TEST(ElementBytes, OfALineAPlaneAndABody) {
  EXPECT_EQ(ElementBytes({100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1), 100u);
  EXPECT_EQ(ElementBytes({100, 10, 0, CU_AD_FORMAT_HALF, 4, 0}, 1), 8000u);
  EXPECT_EQ(ElementBytes({100, 10, 3, CU_AD_FORMAT_FLOAT, 2, 0}, 1), 24000u);
  EXPECT_EQ(ElementBytes({8, 8, 0, CU_AD_FORMAT_UNORM_INT16X4, 4, 0}, 1), 512u);
}

TEST(ElementBytes, EachLevelIsHalfAsWideHighAndDeep) {
  EXPECT_EQ(ElementBytes({8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 4), 32u + 8 + 2 + 1);
  EXPECT_EQ(ElementBytes({4, 4, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 3), 64u + 8 + 1);
}

TEST(ElementBytes, LevelsHaveAllLayers) {
  EXPECT_EQ(ElementBytes({4, 4, 6, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED}, 3), 6u * (16 + 4 + 1));
}

// The driver refuses it; a book must bear it.
TEST(ElementBytes, OfMoreLevelsThanThereAreIsANumber) {
  EXPECT_GT(ElementBytes({8, 8, 8, CU_AD_FORMAT_FLOAT, 1, 0}, ~0u), 0u);
}

}  // namespace
}  // namespace commpool::audit
