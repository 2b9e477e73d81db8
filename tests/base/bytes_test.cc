#include "src/library/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace commpool::internal {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

TEST(Bytes, KnowsPowersOfTwo) {
  EXPECT_TRUE(IsPowerOfTwo(1));
  EXPECT_TRUE(IsPowerOfTwo(uint64_t{1} << 63));
  EXPECT_FALSE(IsPowerOfTwo(0));
  EXPECT_FALSE(IsPowerOfTwo(6));
}

TEST(Bytes, ChecksSums) {
  EXPECT_EQ(CheckedAdd(2, 3), 5u);
  EXPECT_EQ(CheckedAdd(kMost, 0), kMost);
  EXPECT_EQ(CheckedAdd(kMost, 1), std::nullopt);
}

TEST(Bytes, RoundsUpWithoutOverflow) {
  EXPECT_EQ(CheckedRoundUp(0, 512), 0u);
  EXPECT_EQ(CheckedRoundUp(1, 512), 512u);
  EXPECT_EQ(CheckedRoundUp(512, 512), 512u);
  EXPECT_EQ(CheckedRoundUp(1000, 300), 1200u);
  EXPECT_EQ(CheckedRoundUp(kMost, 2), std::nullopt);
  EXPECT_EQ(CheckedRoundUp(kMost, 1), kMost);
}

TEST(Bytes, RoundsDown) {
  EXPECT_EQ(RoundDown(1023, 512), 512u);
  EXPECT_EQ(RoundDown(511, 512), 0u);
  EXPECT_EQ(RoundUp(513, 512), 1024u);
}

TEST(Bytes, FormatsSizesAsPeopleWriteThem) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(8 * kKiB), "8 KiB");
  EXPECT_EQ(FormatBytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatBytes(kMost), "16 EiB");
}

TEST(Bytes, ParsesSizesAsPeopleWriteThem) {
  EXPECT_EQ(ParseBytes("4096").value(), 4096u);
  EXPECT_EQ(ParseBytes("8K").value(), 8 * kKiB);
  EXPECT_EQ(ParseBytes("64M").value(), 64 * kMiB);
  EXPECT_EQ(ParseBytes("1.5GiB").value(), 3 * kGiB / 2);
  EXPECT_EQ(ParseBytes("2GB").value(), 2 * kGiB);
  EXPECT_EQ(ParseBytes("2 g").value(), 2 * kGiB);
  EXPECT_EQ(ParseBytes("0").value(), 0u);
  EXPECT_EQ(ParseBytes(".5K").value(), 512u);
  EXPECT_EQ(ParseBytes("2.").value(), 2u);
  EXPECT_EQ(ParseBytes("0.1G").value(), kGiB / 10);
  EXPECT_EQ(ParseBytes("0." + std::string(400, '3') + "K").value(), kKiB / 3);
}

TEST(Bytes, RefusesTextsThatAreNoSizes) {
  const std::string huge(400, '9');
  const std::string huge_fraction = huge + ".5";
  for (const std::string text : {"", ".", "M", "-1", "1X", "1.2.3K", "8Kelvin", "99999999999G", "1e400", "20E", "16.0E",
                                 "  8K", "0x10", huge.c_str(), huge_fraction.c_str()}) {
    const Result<uint64_t> parsed = ParseBytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.status().message().find("\"" + text + "\""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace commpool::internal
