// The places of elements, by PyTorch's calculators.
#include "src/emulator/cudart/offsets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace commpool::internal::emulated_cudart {
namespace {

// A calculator of one tensor.
std::vector<uint32_t> Calculator(const std::vector<uint32_t>& sizes, const std::vector<uint32_t>& strides) {
  std::vector<uint32_t> words(Offsets::SizeFor(1) / sizeof(uint32_t));
  words[0] = static_cast<uint32_t>(sizes.size());
  for (size_t index = 0; index < sizes.size(); ++index) {
    words[1 + 3 * index] = sizes[index];
    words[1 + 3 * 25 + index] = strides[index];
  }
  return words;
}

TEST(Offsets, RunThroughTheFastestDimensionFirst) {
  const auto offsets = Offsets::Read(Calculator({2, 3}, {100, 8}).data(), 1, 6);
  ASSERT_TRUE(offsets.has_value());
  std::vector<size_t> found;
  for (size_t index = 0; index < 6; ++index) found.push_back(offsets->Of(0, index));
  EXPECT_EQ(found, (std::vector<size_t>{0, 100, 8, 108, 16, 116}));
  EXPECT_EQ(offsets->Last(0), 116u);
}

TEST(Offsets, OfOneElementNeedNoDimension) {
  const auto offsets = Offsets::Read(Calculator({}, {}).data(), 1, 1);
  ASSERT_TRUE(offsets.has_value());
  EXPECT_EQ(offsets->Of(0, 0), 0u);
}

TEST(Offsets, AreNotReadOutOfSomethingElse) {
  std::vector<uint32_t> words = Calculator({2, 3}, {4, 8});
  EXPECT_FALSE(Offsets::Read(words.data(), 1, 5).has_value());
  words[0] = 26;
  EXPECT_FALSE(Offsets::Read(words.data(), 1, 6).has_value());
}

}  // namespace
}  // namespace commpool::internal::emulated_cudart
