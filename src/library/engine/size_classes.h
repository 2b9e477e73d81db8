// The sizes of small blocks, which threads' caches keep. Pure functions: any thread.
//
// Up to 128 KiB every multiple of 512 bytes is a class. Above there are 32 classes for each doubling. So a block is
// less than 512 bytes, or above 128 KiB less than 3.2 %, larger than its request.
#pragma once

#include <bit>
#include <cstdint>

namespace commpool::internal::engine {

using SizeClass = uint32_t;

inline constexpr uint64_t kClassUnit = 512;
inline constexpr uint64_t kFineBytes = 128 << 10;  // up to here each multiple of the unit is a class
inline constexpr uint64_t kSmallBytes = 1 << 20;
inline constexpr SizeClass kFineClasses = kFineBytes / kClassUnit;
inline constexpr int kStepsLog2 = 5;  // 32 classes for each doubling
inline constexpr SizeClass kSizeClasses = kFineClasses + 3 * (1 << kStepsLog2);

// The smallest class that holds `bytes`. REQUIRES: 0 < bytes <= kSmallBytes.
constexpr SizeClass ClassOf(uint64_t bytes) {
  if (bytes <= kFineBytes) return static_cast<SizeClass>((bytes - 1) / kClassUnit);
  const int doubling = static_cast<int>(std::bit_width((bytes - 1) / kFineBytes)) - 1;  // 0 for (128 KiB, 256 KiB]
  const uint64_t base = kFineBytes << doubling;
  const uint64_t step = (bytes - base - 1) >> (17 + doubling - kStepsLog2);
  return kFineClasses + (static_cast<SizeClass>(doubling) << kStepsLog2) + static_cast<SizeClass>(step);
}

// The size of a class's blocks.
constexpr uint64_t ClassBytes(SizeClass size_class) {
  if (size_class < kFineClasses) return (uint64_t{size_class} + 1) * kClassUnit;
  const SizeClass coarse = size_class - kFineClasses;
  const uint64_t base = kFineBytes << (coarse >> kStepsLog2);
  return base + ((uint64_t{coarse} & ((1 << kStepsLog2) - 1)) + 1) * (base >> kStepsLog2);
}

}  // namespace commpool::internal::engine
