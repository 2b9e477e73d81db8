// Finds the word that a misspelt word means.
#include "src/library/base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace commpool::internal {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"limit", "segment", "mode", "moves"};

TEST(TheNearestWord, NeedsTheFewestChanges) {
  EXPECT_EQ(Nearest("limt", kWords), "limit") << "a letter is missing";
  EXPECT_EQ(Nearest("segmentt", kWords), "segment") << "one is too many";
  EXPECT_EQ(Nearest("mude", kWords), "mode") << "one is another";
  EXPECT_EQ(Nearest("segment", kWords), "segment");
}

TEST(TheNearestWord, IsTheFirstOfSeveral) { EXPECT_EQ(Nearest("move", kWords), "mode"); }

TEST(TheNearestWord, OfNoneIsEmpty) { EXPECT_EQ(Nearest("limit", {}), ""); }

}  // namespace
}  // namespace commpool::internal
