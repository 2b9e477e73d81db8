#include "src/registration/divergence.h"

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

}  // namespace
}  // namespace commpool::internal
