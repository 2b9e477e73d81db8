#include "src/library/registration/divergence.h"

#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

TEST(Divergence, IsUnknownAtFirst) {
  const Divergence divergence;
  EXPECT_FALSE(divergence.known());
  EXPECT_TRUE(divergence.status().ok());
}

TEST(Divergence, KeepsTheFirstDifference) {
  Divergence divergence;
  divergence.Note(Status());
  EXPECT_FALSE(divergence.known());
  divergence.Note(SequencesDiffer("here"));
  divergence.Note(SequencesDiffer("there"));
  EXPECT_TRUE(divergence.known());
  EXPECT_EQ(divergence.status().code(), StatusCode::kDisagreement);
  EXPECT_EQ(divergence.status().message(), "the sequences of calls differ, so blocks are at different offsets: here");
}

using engine::SequenceCall;
using engine::SequenceEntry;
using Calls = std::vector<SequenceEntry>;

// A rank's whole sequence: allocations of these sizes.
Calls Made(const std::vector<uint64_t>& sizes) {
  engine::SequenceLog log;
  Calls calls;
  for (const uint64_t bytes : sizes) {
    log.Append(SequenceCall::kAllocate, bytes);
    calls.push_back(*log.Entry(log.count() - 1));
  }
  return calls;
}

Calls Part(const Calls& calls, size_t begin, size_t end) {
  return Calls(calls.begin() + static_cast<std::ptrdiff_t>(begin), calls.begin() + static_cast<std::ptrdiff_t>(end));
}

const Calls kUsual = Made({1, 2, 3, 4, 5, 6});
const Calls kSwapped = Made({1, 2, 4, 3, 5, 6});

TEST(SequenceComparison, FindsNothingInEqualSequences) {
  SequenceComparison comparison(3);
  EXPECT_EQ(comparison.Add(1, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(2, kUsual), std::nullopt);
}

TEST(SequenceComparison, NamesTheFirstDifferingCallInAnyOrderOfRanks) {
  const std::string difference = "rank 0 made allocate 3 bytes (call 2), rank 2 made allocate 4 bytes (call 2)";
  SequenceComparison last_late(3);
  EXPECT_EQ(last_late.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(last_late.Add(1, kUsual), std::nullopt);
  EXPECT_EQ(last_late.Add(2, kSwapped), difference);
  SequenceComparison first_late(3);
  EXPECT_EQ(first_late.Add(2, kSwapped), std::nullopt);
  EXPECT_EQ(first_late.Add(0, kUsual), difference);
}

TEST(SequenceComparison, ComparesOnlyWhatBothHavePublished) {
  SequenceComparison comparison(2);
  EXPECT_EQ(comparison.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kSwapped, 0, 2)), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kSwapped, 2, 3)),
            "rank 0 made allocate 3 bytes (call 2), rank 1 made allocate 4 bytes (call 2)");
}

TEST(SequenceComparison, SaysWhereTheFirstDifferenceMayLieInAGap) {
  SequenceComparison comparison(2);
  EXPECT_EQ(comparison.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kSwapped, 0, 2)), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kSwapped, 4, 5)),
            "rank 0 made allocate 5 bytes (call 4), rank 1 made allocate 5 bytes (call 4), or an earlier call was "
            "different");
}

TEST(SequenceComparison, AGapInEqualSequencesIsNoDifference) {
  SequenceComparison comparison(2);
  EXPECT_EQ(comparison.Add(0, Part(kUsual, 0, 2)), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kUsual, 0, 3)), std::nullopt);
  EXPECT_EQ(comparison.Add(0, Part(kUsual, 5, 6)), std::nullopt);
  EXPECT_EQ(comparison.Add(1, Part(kUsual, 4, 6)), std::nullopt);
}

TEST(SequenceComparison, ARankThatHasGoneIsComparedNoMore) {
  SequenceComparison comparison(3);
  EXPECT_EQ(comparison.Add(1, kSwapped), std::nullopt);
  comparison.Forget(1);
  EXPECT_EQ(comparison.Add(0, kUsual), std::nullopt);
  EXPECT_EQ(comparison.Add(2, kUsual), std::nullopt);
}

TEST(SequenceComparison, KeepsCallsThatARankHasNotPublishedYet) {
  SequenceComparison comparison(3);
  comparison.Add(0, kUsual);
  comparison.Add(1, Part(kUsual, 0, 4));
  EXPECT_EQ(comparison.kept(), 6u) << "all of rank 0's, for rank 2 has said nothing";
  comparison.Add(2, Part(kUsual, 0, 2));
  EXPECT_EQ(comparison.kept(), 4u) << "what rank 2 has not published";
  comparison.Add(2, Part(kUsual, 2, 6));
  EXPECT_EQ(comparison.kept(), 2u) << "what rank 1 has not";
  comparison.Forget(1);
  EXPECT_EQ(comparison.kept(), 0u);
  comparison.Add(2, Made({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(comparison.kept(), 1u) << "rank 0 is behind now";
}

TEST(SequenceComparison, KeepsNothingForARankThatHasGone) {
  SequenceComparison comparison(2);
  comparison.Add(1, kUsual);
  comparison.Forget(1);
  comparison.Add(0, kUsual);
  EXPECT_EQ(comparison.kept(), 0u);
}

TEST(SequenceComparison, OfOneThatIsFarBehindForgetsTheOldestCalls) {
  SequenceComparison comparison(2);
  std::vector<uint64_t> sizes(SequenceComparison::kMostKept + 10, 512);
  const Calls usual = Made(sizes);
  sizes[3] = 1024;
  EXPECT_EQ(comparison.Add(0, usual), std::nullopt);
  const std::optional<std::string> difference = comparison.Add(1, Made(sizes));
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->find("(call 10), or an earlier call was different"), std::string::npos) << *difference;
}

}  // namespace
}  // namespace commpool::internal
