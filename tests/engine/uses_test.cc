// The uses of a block: the first lies in the block, more lie in an array, and callers see no difference.
#include "src/library/engine/uses.h"

#include <gtest/gtest.h>

#include <vector>

namespace commpool::internal::engine {
namespace {

std::vector<StreamKey> StreamsOf(const Uses& uses) {
  std::vector<StreamKey> streams;
  for (const Use& use : uses) streams.push_back(use.stream);
  EXPECT_EQ(streams.size(), uses.size());
  EXPECT_EQ(streams.empty(), uses.empty());
  return streams;
}

Use Of(StreamKey stream) { return {stream, kNoFence, kNoMoment}; }

TEST(Uses, GrowAtEitherEnd) {
  Uses uses;
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
  uses.push_back(Of(5));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({5}));
  uses.insert(uses.begin(), Of(3));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({3, 5}));
  uses.insert(uses.begin() + 1, Of(4));
  uses.push_back(Of(6));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({3, 4, 5, 6}));
  EXPECT_EQ(uses.front().stream, 3u);
}

TEST(Uses, ShrinkAndGrowAgain) {
  Uses uses = {Of(1), Of(2), Of(3)};
  uses.EraseIf([](const Use& use) { return use.stream != 2; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({2}));
  uses.push_back(Of(4));
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({2, 4}));
  uses.clear();
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
  uses.push_back(Of(7));
  uses.EraseIf([](const Use& use) { return use.stream == 8; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>({7}));
  uses.EraseIf([](const Use& use) { return use.stream == 7; });
  EXPECT_EQ(StreamsOf(uses), std::vector<StreamKey>());
}

TEST(Uses, AreEqualHoweverTheyCameToBe) {
  Uses shrunk = {Of(1), Of(2)};
  shrunk.EraseIf([](const Use& use) { return use.stream == 1; });
  const Uses one = {Of(2)};
  EXPECT_EQ(shrunk, one);
  EXPECT_FALSE(one == Uses());
  EXPECT_FALSE(one == Uses({Of(3)}));
  EXPECT_FALSE(one == Uses({Of(2), Of(3)}));
  const Uses copy = shrunk;
  EXPECT_EQ(copy, one);
}

}  // namespace
}  // namespace commpool::internal::engine
