#include "src/registration/wire.h"

#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

TEST(Wire, GivesBackWhatWasWritten) {
  WireWriter writer;
  writer.Number(0);
  writer.Text(std::string("a\0b", 3));
  writer.Number(UINT64_MAX);
  writer.Text("");
  const std::string bytes = writer.Take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.Number(), 0u);
  EXPECT_EQ(reader.Text(), std::string("a\0b", 3));
  EXPECT_EQ(reader.Number(), UINT64_MAX);
  EXPECT_EQ(reader.Text(), "");
  EXPECT_TRUE(reader.ok());
}

TEST(Wire, ReadsZerosPastTheEndAndSaysSo) {
  WireReader reader("1234567");
  EXPECT_EQ(reader.Number(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Text(), "");
}

TEST(Wire, DoesNotBelieveALengthBeyondTheEnd) {
  WireWriter writer;
  writer.Number(UINT64_MAX);
  const std::string bytes = writer.Take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.Text(), "");
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, StaysFailedAfterAFailure) {
  WireWriter writer;
  writer.Number(1000);  // taken for a length
  writer.Number(7);
  const std::string bytes = writer.Take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.Text(), "");
  EXPECT_EQ(reader.Number(), 0u);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace commpool::internal
