// Floating-point types of 8 and 16 bits. They round to nearest even, as the device does. They are values: any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace commpool::internal {

// The upper half of a float, rounded to nearest even.
struct Bfloat16 {
  uint16_t bits;

  float ToFloat() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static Bfloat16 FromFloat(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return {static_cast<uint16_t>(0x7fff)};
    return {static_cast<uint16_t>((whole + 0x7fff + ((whole >> 16) & 1)) >> 16)};
  }
};

// IEEE 754 half precision, rounded to nearest even.
struct Half {
  uint16_t bits;

  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t rest = bits & 0x7fff;
    if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    // A multiplication moves the exponent, because that handles subnormal numbers too.
    const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }

  static Half FromFloat(float value) {
    const auto whole = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((whole >> 16) & 0x8000);
    const uint32_t magnitude = whole & 0x7fffffff;
    if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7fff)};
    if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};
    if (magnitude < 0x38800000) {
      // Adding 0.5 leaves the rounded bits of the subnormal in the lowest places.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000))};
    }
    const uint32_t rounded = magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1);
    return {static_cast<uint16_t>(sign | (rounded >> 13))};
  }
};

// A type of eight bits, of which the lowest `kMantissa` are the fraction. A value that is too large becomes the largest
// finite number, as in NVIDIA's conversions. NCCL adds and multiplies such values as halves
// (src/device/reduce_kernel.h), so they are converted through Half.
template <int kMantissa, int kBias, int kLargestBits>
struct Float8 {
  uint8_t bits;

  static constexpr bool kHasInfinity = kLargestBits < 0x7c;

  float ToFloat() const {
    const int magnitude = bits & 0x7f;
    const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
    if (magnitude > kLargestBits) {
      const bool infinite = kHasInfinity && magnitude == kLargestBits + 1;
      return infinite ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    }
    const int exponent = magnitude >> kMantissa;
    const int fraction = magnitude & ((1 << kMantissa) - 1);
    const int whole = exponent == 0 ? fraction : fraction + (1 << kMantissa);
    return sign * std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - kBias - kMantissa);
  }

  static Float8 FromFloat(float value) {
    const float half = Half::FromFloat(value).ToFloat();
    if (std::isnan(half)) return {0x7f};
    const int sign = std::signbit(half) ? 0x80 : 0;
    const float largest = Float8{kLargestBits}.ToFloat();
    const float magnitude = std::min(std::fabs(half), largest);
    const int exponent = magnitude == 0 ? 1 - kBias : std::max(std::ilogb(magnitude), 1 - kBias);
    // Numbers with one exponent are evenly spaced. A fraction that rounds up carries into the exponent by itself.
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kMantissa - exponent)));
    const int rounded = ((exponent + kBias - 1) << kMantissa) + steps;
    return {static_cast<uint8_t>(sign | std::min(rounded, kLargestBits))};
  }
};
using Float8E4M3 = Float8<3, 7, 0x7e>;
using Float8E5M2 = Float8<2, 15, 0x7b>;

}  // namespace commpool::internal
