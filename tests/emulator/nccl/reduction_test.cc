#include "src/emulator/nccl/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace commpool::internal::emulated_nccl {
namespace {

// The value of a short float, by the definition: slow and plain. E4M3 has no infinity, and one not-a-number of each
// sign.
double ValueOf(ncclDataType_t type, int bits) {
  const int width = type == ncclHalf ? 15 : 7;  // of all but the sign
  const int mantissa = type == ncclHalf ? 10 : type == ncclFloat8e5m2 ? 2 : 3;
  const int bias = type == ncclFloat8e4m3 ? 7 : 15;
  const int magnitude = bits & ((1 << width) - 1);
  const int exponent = magnitude >> mantissa;
  const int fraction = magnitude & ((1 << mantissa) - 1);
  const double sign = bits >> width != 0 ? -1 : 1;
  if (type == ncclFloat8e4m3 && magnitude == 0x7f) return std::nan("");
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
}

template <typename T>
T ReduceOne(ncclDataType_t type, ncclRedOp_t operation, T a, T b) {
  T result = 0;
  Reduce(type, operation, &a, &b, &result, 1);
  return result;
}

uint16_t AddHalves(uint16_t a, uint16_t b) { return ReduceOne(ncclHalf, ncclSum, a, b); }

uint8_t ReduceFloat8(ncclDataType_t type, ncclRedOp_t operation, int a, int b) {
  return ReduceOne(type, operation, static_cast<uint8_t>(a), static_cast<uint8_t>(b));
}

TEST(Reduction, ChecksProducts) {
  EXPECT_EQ(CheckedMultiply(6, 7), 42u);
  EXPECT_EQ(CheckedMultiply(UINT64_MAX, 0), 0u);
  EXPECT_EQ(CheckedMultiply(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
}

TEST(Reduction, KnowsTheBytesOfEachType) {
  EXPECT_EQ(ElementBytes(ncclInt8), 1u);
  EXPECT_EQ(ElementBytes(ncclHalf), 2u);
  EXPECT_EQ(ElementBytes(ncclFloat), 4u);
  EXPECT_EQ(ElementBytes(ncclDouble), 8u);
  EXPECT_EQ(ElementBytes(ncclNumTypes), 0u);
  EXPECT_EQ(ElementBytes(ncclFloat8e4m3), 1u);
}

TEST(Reduction, AddingZeroKeepsEveryHalf) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const double value = ValueOf(ncclHalf, bits);
    const double sum = ValueOf(ncclHalf, AddHalves(static_cast<uint16_t>(bits), 0));
    ASSERT_TRUE(std::isnan(value) ? std::isnan(sum) : sum == value) << bits << ": " << value << " becomes " << sum;
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
  EXPECT_EQ(ReduceOne(ncclBfloat16, ncclSum, bits(256.0f), bits(1.0f)), bits(256.0f));
}

TEST(Reduction, WrapsWholeNumbers) {
  EXPECT_EQ(ReduceOne(ncclInt8, ncclSum, int8_t{127}, int8_t{1}), -128);
  EXPECT_EQ(ReduceOne(ncclInt64, ncclProd, std::numeric_limits<int64_t>::max(), int64_t{2}), -2);
}

TEST(Reduction, WorksInPlace) {
  std::vector<float> own = {1, 5, 3};
  const std::vector<float> received = {2, 4, 9};
  Reduce(ncclFloat, ncclMax, own.data(), received.data(), own.data(), own.size());
  EXPECT_EQ(own, (std::vector<float>{2, 5, 9}));
}

TEST(Reduction, DividesFloatsBeforeAndWholeNumbersAfter) {
  EXPECT_TRUE((Reduction{.type = ncclHalf, .operation = ncclAvg}.PreparesOwn()));
  EXPECT_FALSE((Reduction{.type = ncclHalf, .operation = ncclAvg}.DividesAfter()));
  EXPECT_TRUE((Reduction{.type = ncclInt32, .operation = ncclAvg}.DividesAfter()));
  EXPECT_FALSE((Reduction{.type = ncclFloat, .operation = ncclSum}.PreparesOwn()));
  std::vector<int32_t> values = {9, -9};
  Divide(ncclInt32, values.data(), 2, values.data(), 2);
  EXPECT_EQ(values, (std::vector<int32_t>{4, -4}));
}

TEST(Reduction, AddingZeroKeepsEveryFloat8) {
  for (const ncclDataType_t type : {ncclFloat8e4m3, ncclFloat8e5m2}) {
    for (int bits = 0; bits < 256; ++bits) {
      const double value = ValueOf(type, bits);
      const double sum = ValueOf(type, ReduceFloat8(type, ncclSum, bits, 0));
      if (std::isinf(value)) continue;  // becomes the largest number
      ASSERT_TRUE(std::isnan(value) ? std::isnan(sum) : sum == value) << type << " " << bits;
    }
  }
}

TEST(Reduction, RoundsFloat8ToTheNearestEven) {
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclSum, 0x58, 0x38), 0x58);   // 16 + 1 = 17: between 16 and 18
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclSum, 0x59, 0x38), 0x5a);   // 18 + 1 = 19: between 18 and 20
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclSum, 0x01, 0x01), 0x02);   // the smallest there are
  EXPECT_EQ(ReduceFloat8(ncclFloat8e5m2, ncclSum, 0x4c, 0x3c), 0x4c);   // 16 + 1 = 17: between 16 and 20
  EXPECT_EQ(ReduceFloat8(ncclFloat8e5m2, ncclMax, 0x3c, 0xbc), 0x3c);   // 1 and -1
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclProd, 0x40, 0xc0), 0xc8);  // 2 * -2
}

TEST(Reduction, OfFloat8EndsAtTheLargestNumber) {
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclSum, 0x7e, 0x7e), 0x7e);
  EXPECT_EQ(ReduceFloat8(ncclFloat8e4m3, ncclProd, 0xfe, 0x7e), 0xfe);
  EXPECT_EQ(ReduceFloat8(ncclFloat8e5m2, ncclSum, 0x7b, 0x7b), 0x7b);
}

TEST(Reduction, ScalesByAnElementOfTheSameType) {
  const std::vector<float> values = {1, 2, -3};
  std::vector<float> result(3);
  const float half = 0.5f;
  Scale(ncclFloat, values.data(), &half, result.data(), 3);
  EXPECT_EQ(result, (std::vector<float>{0.5f, 1, -1.5f}));
  int8_t whole = 100;
  const int8_t three = 3;
  Scale(ncclInt8, &whole, &three, &whole, 1);
  EXPECT_EQ(whole, 44);  // wraps around
}

}  // namespace
}  // namespace commpool::internal::emulated_nccl
