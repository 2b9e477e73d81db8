// Byte arithmetic that cannot overflow silently, and sizes as people write them. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "commpool/status.h"

namespace commpool::internal {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

constexpr bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// a + b, or nothing where 64 bits do not hold it.
constexpr std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  if (a > UINT64_MAX - b) return std::nullopt;
  return a + b;
}

// For values that are known to be far from the limit. REQUIRES: unit > 0, no overflow.
constexpr uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }
constexpr uint64_t RoundDown(uint64_t bytes, uint64_t unit) { return bytes / unit * unit; }

// The smallest multiple of `unit` that is at least `bytes`; nothing on overflow. REQUIRES: unit > 0.
constexpr std::optional<uint64_t> CheckedRoundUp(uint64_t bytes, uint64_t unit) {
  if (bytes > UINT64_MAX - (unit - 1)) return std::nullopt;
  return RoundUp(bytes, unit);
}

// "512 B", "1.5 GiB": at most one decimal.
std::string FormatBytes(uint64_t bytes);
// "1 block", "2 blocks".
std::string Counted(uint64_t number, const char* noun);

// "8K", "64M", "1.5GiB", "2GB" (binary all of them), "4096". Errors name the text.
Result<uint64_t> ParseBytes(std::string_view text);

}  // namespace commpool::internal
