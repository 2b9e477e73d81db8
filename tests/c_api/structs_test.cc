// Structs, arrays and enumerations of programs: those of this minor version work, others are refused with a message.
#include "src/library/c_api/structs.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "commpool/commpool.h"

namespace commpool::internal {
namespace {

enum class Colour { kRed, kGreen, kBlue };

void ExpectInvalid(const Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " is not in: " << status.message();
  }
}

std::string OurVersion() {
  return "commpool " + std::to_string(COMMPOOL_VERSION_MAJOR) + "." + std::to_string(COMMPOOL_VERSION_MINOR) + ".";
}

TEST(Structs, OfThisVersionAreTaken) { EXPECT_TRUE(CheckStructBytes("test_options", 24, 24).ok()); }

TEST(Structs, OfAnotherVersionOrNeverInitialisedAreRefusedInWords) {
  for (const size_t bytes : {size_t{0}, size_t{16}, size_t{32}, SIZE_MAX}) {
    ExpectInvalid(CheckStructBytes("test_options", bytes, 24),
                  {"test options: struct_bytes is " + std::to_string(bytes), OurVersion(), "has 24",
                   "call commpool_test_options_init", "build the program with this version"});
  }
}

TEST(Entries, OfAnotherSizeAreRefusedInWords) {
  EXPECT_TRUE(CheckEntryBytes("test", 24, 24).ok());
  for (const size_t bytes : {16, 32}) {
    ExpectInvalid(CheckEntryBytes("test", bytes, 24),
                  {"entry_bytes is " + std::to_string(bytes), OurVersion(), "sizeof(commpool_test)"});
  }
}

TEST(Words, ArriveByTheirNumbers) {
  Colour colour = Colour::kRed;
  EXPECT_TRUE(ReadWord("colour", 2, {"RED", "GREEN", "BLUE"}, &colour).ok());
  EXPECT_EQ(colour, Colour::kBlue);
}

TEST(Words, ThatNobodyKnowsAreRefusedWithTheKnownOnes) {
  for (const int number : {-1, 3, 99}) {
    Colour colour = Colour::kGreen;
    ExpectInvalid(ReadWord("colour", number, {"RED", "GREEN", "BLUE"}, &colour),
                  {"colour " + std::to_string(number) + " is none of RED, GREEN, BLUE"});
    EXPECT_EQ(colour, Colour::kGreen) << "as it was";
  }
}

class Arrays : public ::testing::Test {
 protected:
  EntryArray<int> Of(int* entries, size_t* count) const { return {entries, sizeof(int), entries_.size(), count}; }

  std::array<int, 2> entries_ = {7, 7};
  size_t count_ = 7;
};

TEST_F(Arrays, AreWrittenAsFarAsTheyGoAndTellHowManyThereAre) {
  const EntryArray<int> array = Of(entries_.data(), &count_);
  ASSERT_TRUE(array.Check("int").ok());
  array.Write(std::vector<int>{1, 2, 3}, [](int value) { return 10 * value; });
  EXPECT_EQ(entries_, (std::array{10, 20}));
  EXPECT_EQ(count_, 3u);
  array.Write(std::vector<int>{4}, [](int value) { return value; });
  EXPECT_EQ(entries_, (std::array{4, 20})) << "no further than the list goes";
  EXPECT_EQ(count_, 1u);
}

TEST_F(Arrays, MayBeNullWhereTheirCountIsNot) {
  const std::vector<int> list = {1, 2, 3};
  const auto itself = [](int value) { return value; };
  ASSERT_TRUE(Of(nullptr, &count_).Check("int").ok());
  Of(nullptr, &count_).Write(list, itself);
  EXPECT_EQ(count_, 3u);
  ASSERT_TRUE(Of(entries_.data(), nullptr).Check("int").ok());
  Of(entries_.data(), nullptr).Write(list, itself);
  EXPECT_EQ(entries_, (std::array{1, 2}));
  ExpectInvalid(Of(nullptr, nullptr).Check("int"), {"null"});
}

TEST_F(Arrays, OfAnotherEntrySizeAreRefusedWhereTheyAreWritten) {
  EntryArray<int> array = Of(entries_.data(), &count_);
  array.entry_bytes = 2;
  ExpectInvalid(array.Check("int"), {"entry_bytes is 2", "sizeof(commpool_int)"});
  array.entries = nullptr;
  EXPECT_TRUE(array.Check("int").ok()) << "nothing is written";
}

}  // namespace
}  // namespace commpool::internal
