// Fields of structs: numbers and texts as bytes, and back.
#include "src/library/base/fields.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "src/library/base/field_list.h"

namespace commpool::internal {
namespace {

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
  void ExpectReadBack(const Value& value) {
    FieldReader reader(Written(value));
    Value read{};
    reader.Read(read);
    EXPECT_TRUE(reader.ok() && reader.at_end());
    EXPECT_EQ(read, value);
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
  uint64_t address = 0;
  int device = 0;
  std::string name;
  reader.Read(address);
  reader.Read(device);
  reader.Read(name);
  EXPECT_TRUE(reader.ok() && reader.at_end());
  EXPECT_EQ(address, 4096u);
  EXPECT_EQ(device, -2);
  EXPECT_EQ(name, "own");
}

TEST_F(Fields, AnOkStatusHasNoMessage) {
  Status read;
  FieldReader reader(std::string_view("\0\1x", 3));
  reader.Read(read);
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
    std::string read;
    reader.Read(read);
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(read, "");
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
    std::vector<Place> places;
    reader.Read(places);
    EXPECT_LE(places.size(), bytes.size() + 1);
  }
}

}  // namespace
}  // namespace commpool::internal
