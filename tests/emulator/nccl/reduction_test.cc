#include "src/emulator/nccl/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace commpool::emulated_nccl {
namespace {

// IEEE half, by the definition: slow and plain.
double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

uint16_t AddHalves(uint16_t a, uint16_t b) {
  uint16_t sum = 0;
  Reduce(ncclHalf, ncclSum, &a, &b, &sum, 1);
  return sum;
}

TEST(Reduction, KnowsTheBytesOfEachType) {
  EXPECT_EQ(ElementBytes(ncclInt8), 1u);
  EXPECT_EQ(ElementBytes(ncclHalf), 2u);
  EXPECT_EQ(ElementBytes(ncclFloat), 4u);
  EXPECT_EQ(ElementBytes(ncclDouble), 8u);
  EXPECT_EQ(ElementBytes(ncclNumTypes), 0u);
  EXPECT_FALSE(CanReduce(ncclFloat8e4m3));
  EXPECT_FALSE(CanReduce(ncclNumTypes));
}

TEST(Reduction, AddingZeroKeepsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t sum = AddHalves(half, 0);
    if (std::isnan(HalfValue(half))) {
      ASSERT_TRUE(std::isnan(HalfValue(sum))) << bits;
    } else {
      ASSERT_EQ(HalfValue(sum), HalfValue(half)) << bits;
    }
  }
}

TEST(Reduction, RoundsHalvesToTheNearestEven) {
  EXPECT_EQ(AddHalves(0x6800, 0x3c00), 0x6800);  // 2048 + 1 = 2049: between 2048 and 2050
  EXPECT_EQ(AddHalves(0x6801, 0x3c00), 0x6802);  // 2050 + 1 = 2051: between 2050 and 2052
  EXPECT_EQ(AddHalves(0x7bff, 0x7bff), 0x7c00);  // too large
  EXPECT_EQ(AddHalves(0x0001, 0x0001), 0x0002);  // the smallest there are
}

TEST(Reduction, RoundsBfloat16ToTheNearestEven) {
  const auto bits = [](float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); };
  const uint16_t a = bits(256.0f);
  const uint16_t one = bits(1.0f);
  uint16_t sum = 0;
  Reduce(ncclBfloat16, ncclSum, &a, &one, &sum, 1);
  EXPECT_EQ(sum, bits(256.0f));
}

TEST(Reduction, WrapsWholeNumbers) {
  const int8_t a = 127;
  const int8_t b = 1;
  int8_t sum = 0;
  Reduce(ncclInt8, ncclSum, &a, &b, &sum, 1);
  EXPECT_EQ(sum, -128);
  const int64_t large = std::numeric_limits<int64_t>::max();
  const int64_t two = 2;
  int64_t product = 0;
  Reduce(ncclInt64, ncclProd, &large, &two, &product, 1);
  EXPECT_EQ(product, -2);
}

TEST(Reduction, WorksInPlace) {
  std::vector<float> own = {1, 5, 3};
  const std::vector<float> received = {2, 4, 9};
  Reduce(ncclFloat, ncclMax, own.data(), received.data(), own.data(), own.size());
  EXPECT_EQ(own, (std::vector<float>{2, 5, 9}));
}

TEST(Reduction, DividesFloatsBeforeAndWholeNumbersAfter) {
  EXPECT_TRUE(DividesBefore(ncclHalf, ncclAvg));
  EXPECT_FALSE(DividesAfter(ncclHalf, ncclAvg));
  EXPECT_TRUE(DividesAfter(ncclInt32, ncclAvg));
  EXPECT_FALSE(DividesBefore(ncclFloat, ncclSum));
  std::vector<int32_t> values = {9, -9};
  Divide(ncclInt32, values.data(), 2, values.data(), 2);
  EXPECT_EQ(values, (std::vector<int32_t>{4, -4}));
}

}  // namespace
}  // namespace commpool::emulated_nccl
