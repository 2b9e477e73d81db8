// Bytes: sizes, as people write them too; fields of structs as bytes, and back; and the hash of bytes under a key.
#include "src/library/base/bytes.h"

#include <array>
#include <numeric>
#include <random>

#include "src/library/base/field_list.h"
#include "src/library/base/fields.h"
#include "src/library/base/keyed_hash.h"
#include "tests/base/expect_status.h"

namespace commpool::internal {
namespace {

TEST(Bytes, KnowsPowersOfTwo) {
  EXPECT_TRUE(IsPowerOfTwo(1));
  EXPECT_TRUE(IsPowerOfTwo(uint64_t{1} << 63));
  EXPECT_FALSE(IsPowerOfTwo(0));
  EXPECT_FALSE(IsPowerOfTwo(6));
}

TEST(Bytes, ChecksSums) {
  EXPECT_EQ(CheckedAdd(2, 3), 5u);
  EXPECT_EQ(CheckedAdd(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_EQ(CheckedAdd(UINT64_MAX, 1), std::nullopt);
}

TEST(Bytes, RoundsUpWithoutOverflow) {
  EXPECT_EQ(CheckedRoundUp(0, 512), 0u);
  EXPECT_EQ(CheckedRoundUp(1, 512), 512u);
  EXPECT_EQ(CheckedRoundUp(512, 512), 512u);
  EXPECT_EQ(CheckedRoundUp(1000, 300), 1200u);
  EXPECT_EQ(CheckedRoundUp(UINT64_MAX, 2), std::nullopt);
  EXPECT_EQ(CheckedRoundUp(UINT64_MAX, 1), UINT64_MAX);
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
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16 EiB");
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
    SCOPED_TRACE(text);
    ExpectFailure(ParseBytes(text).status(), StatusCode::kInvalidArgument, "\"" + text + "\"");
  }
}

struct Place {
  uint64_t address = 0;
  int device = -1;
  std::string name = {};
  using Fields = FieldList<&Place::address, &Place::device, &Place::name>;
};

class Fields : public ::testing::Test {
 protected:
  template <typename Value>
  std::string_view Written(const Value& value) {
    FieldWriter writer(bytes_.data(), bytes_.size());
    writer.Write(value);
    EXPECT_TRUE(writer.fits());
    return {bytes_.data(), writer.used()};
  }
  template <typename Value>
  static Value Read(FieldReader& reader) {
    Value read{};
    reader.Read(read);
    return read;
  }
  template <typename Value>
  void ExpectReadBack(const Value& value) {
    FieldReader reader(Written(value));
    EXPECT_EQ(Read<Value>(reader), value);
    EXPECT_TRUE(reader.ok() && reader.at_end());
  }

  std::array<char, 256> bytes_;
};

TEST_F(Fields, NumbersOfEverySizeAreReadBack) {
  for (unsigned bits = 0; bits < 64; ++bits) {
    for (const uint64_t off : {-1, 0, 1}) {
      const uint64_t number = (uint64_t{1} << bits) + off;
      ExpectReadBack(number);
      ExpectReadBack(static_cast<int64_t>(number));
      ExpectReadBack(static_cast<int64_t>(0 - number));
    }
  }
  ExpectReadBack(UINT64_MAX);
  ExpectReadBack(INT64_MIN);
}

TEST_F(Fields, SmallNumbersTakeOneByte) {
  EXPECT_EQ(Written(uint64_t{127}).size(), 1u);
  EXPECT_EQ(Written(int64_t{-64}).size(), 1u);
}

TEST_F(Fields, TextsAreReadBackWithTheirZeros) {
  ExpectReadBack(std::string());
  ExpectReadBack(std::string("one\0two", 7));
}

TEST_F(Fields, AStructIsItsFieldsInTheirOrder) {
  FieldReader reader(Written(Place{.address = 4096, .device = -2, .name = "own"}));
  EXPECT_EQ(Read<uint64_t>(reader), 4096u);
  EXPECT_EQ(Read<int>(reader), -2);
  EXPECT_EQ(Read<std::string>(reader), "own");
  EXPECT_TRUE(reader.ok() && reader.at_end());
}

TEST_F(Fields, AnOkStatusHasNoMessage) {
  FieldReader reader(std::string_view("\0\1x", 3));
  (void)Read<Status>(reader);
  EXPECT_FALSE(reader.ok()) << "else two messages would mean the same";
}

TEST_F(Fields, WhatDoesNotFitIsSaidAndNothingIsWrittenPastTheRoom) {
  bytes_.fill('x');
  FieldWriter writer(bytes_.data(), 3);
  writer.Write(std::string_view("four"));
  EXPECT_FALSE(writer.fits());
  EXPECT_EQ(bytes_[3], 'x');
}

TEST_F(Fields, ABytesThatAreCutOrNoNumberFail) {
  const std::string_view whole = Written(std::string("text"));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    FieldReader reader(whole.substr(0, bytes));
    EXPECT_EQ(Read<std::string>(reader), "");
    EXPECT_FALSE(reader.ok());
  }
  const std::string endless(11, '\x80');
  FieldReader reader(endless);
  uint64_t number = 1;
  reader.Read(number);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(number, 0u);
}

TEST_F(Fields, AnyBytesAreReadWithoutHarm) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    FieldReader reader(bytes);
    EXPECT_LE(Read<std::vector<Place>>(reader).size(), bytes.size() + 1);
  }
}

// The bytes 0, 1, 2, ... are the published vectors' key and messages.
constexpr HashKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::array<unsigned char, 64> Counting() {
  std::array<unsigned char, 64> bytes{};
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  return bytes;
}

TEST(KeyedHash, IsThatOfTheReferenceForEveryLengthUpToTwoWords) {
  // SipHash-2-4 of the first n bytes, from the reference implementation's table.
  constexpr std::array<uint64_t, 16> kReference = {
      0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
      0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
      0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
      0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5};
  const auto message = Counting();
  for (size_t bytes = 0; bytes < kReference.size(); ++bytes) {
    EXPECT_EQ(KeyedHash(kKey, message.data(), bytes), kReference[bytes]) << bytes << " bytes";
  }
}

TEST(KeyedHash, DependsOnEveryBitOfKeyAndMessage) {
  const auto message = Counting();
  const uint64_t whole = KeyedHash(kKey, message.data(), message.size());
  for (size_t bit = 0; bit < 8 * message.size(); ++bit) {
    auto changed = message;
    changed[bit / 8] = static_cast<unsigned char>(changed[bit / 8] ^ (1U << (bit % 8)));
    EXPECT_NE(KeyedHash(kKey, changed.data(), changed.size()), whole) << "bit " << bit;
  }
  for (size_t bit = 0; bit < 128; ++bit) {
    HashKey changed = kKey;
    changed[bit / 64] ^= uint64_t{1} << (bit % 64);
    EXPECT_NE(KeyedHash(changed, message.data(), message.size()), whole) << "key bit " << bit;
  }
}

TEST(RandomKey, IsAnotherEachTime) { EXPECT_NE(RandomKey().value(), RandomKey().value()); }

}  // namespace
}  // namespace commpool::internal
