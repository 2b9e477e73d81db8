// Structs of older and newer programs: each side keeps to what the other has.
#include "src/c_api/structs.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace commpool::internal {
namespace {

// A struct of three versions: the first had `first`, this library's has `second` too.
struct First {
  size_t struct_bytes = sizeof(First);
  uint64_t first = 1;
};
struct Known {
  size_t struct_bytes = sizeof(Known);
  uint64_t first = 1;
  uint64_t second = 2;
};
struct Newer {
  Known known = {sizeof(Newer), 1, 2};
  uint64_t third = 0;
};

constexpr StructName kName = {"test options", "test_options_init", sizeof(First)};
constexpr uint64_t kGuard = 0xa5a5a5a5a5a5a5a5;

const Known* AsKnown(const void* given) { return static_cast<const Known*>(given); }

TEST(Structs, OfThisVersionArriveAsTheyWereSet) {
  const Known given = {sizeof(Known), 10, 20};
  const Result<Known> read = ReadStruct(kName, &given, Known());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->first, 10u);
  EXPECT_EQ(read->second, 20u);
}

TEST(Structs, OfAnOlderProgramGetTheDefaultsOfWhatItDoesNotKnow) {
  struct {
    First given = {sizeof(First), 10};
    uint64_t beyond = 99;  // the program's own: not read
  } older;
  const Result<Known> read = ReadStruct(kName, AsKnown(&older), Known());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->first, 10u);
  EXPECT_EQ(read->second, 2u);
  EXPECT_EQ(read->struct_bytes, sizeof(Known));
}

TEST(Structs, OfANewerProgramAreReadWhereItLeavesTheRestAtZero) {
  Newer newer;
  newer.known.second = 20;
  const Result<Known> read = ReadStruct(kName, &newer.known, Known());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->second, 20u);
}

TEST(Structs, OfANewerProgramThatSetsTheRestAreRefusedWithASentence) {
  Newer newer;
  newer.third = 1;
  const Status status = ReadStruct(kName, &newer.known, Known()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotSupported);
  for (const char* part : {"test options", "newer commpool", "has 32 bytes", "byte 24", "first 24", "version 0."}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " is not in: " << status.message();
  }
}

TEST(Structs, ThatWereNeverInitialisedAreRefused) {
  for (const size_t bytes : {size_t{0}, sizeof(First) - 1, size_t{4097}, SIZE_MAX}) {
    Known given;
    given.struct_bytes = bytes;
    const Status status = ReadStruct(kName, &given, Known()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bytes;
    EXPECT_NE(status.message().find("test_options_init"), std::string::npos) << status.message();
    EXPECT_EQ(WriteStruct(kName, Known(), &given).code(), StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(Structs, AreWrittenNoFurtherThanTheProgramKnows) {
  struct {
    First given;
    uint64_t guard = kGuard;
  } older;
  ASSERT_TRUE(WriteStruct(kName, Known{0, 10, 20}, reinterpret_cast<Known*>(&older)).ok());
  EXPECT_EQ(older.given.first, 10u);
  EXPECT_EQ(older.given.struct_bytes, sizeof(First)) << "the program's size stays";
  EXPECT_EQ(older.guard, kGuard);
}

TEST(Structs, AreZeroWhereTheLibraryHasNoAnswer) {
  struct {
    Newer given;
    uint64_t guard = kGuard;
  } newer;
  newer.given.third = 99;
  ASSERT_TRUE(WriteStruct(kName, Known{0, 10, 20}, &newer.given.known).ok());
  EXPECT_EQ(newer.given.known.second, 20u);
  EXPECT_EQ(newer.given.third, 0u);
  EXPECT_EQ(newer.guard, kGuard);
}

TEST(Structs, LieInArraysAtTheProgramsOwnDistance) {
  std::array<Newer, 3> array;
  array[2].known.first = 30;
  EXPECT_EQ(EntryAt(AsKnown(&array), sizeof(Newer), 2)->first, 30u);
}

}  // namespace
}  // namespace commpool::internal
