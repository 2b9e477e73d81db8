#include "commpool/status.h"

#include <gtest/gtest.h>

namespace commpool {
namespace {

TEST(Status, UnderAPrefixKeepsItsCode) {
  const Status status = Status(StatusCode::kOutOfMemory, "no room").under("pool gradients");
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(status.message(), "pool gradients: no room");
}

TEST(Status, UnderTwoPrefixesNamesTheOuterOneFirst) {
  EXPECT_EQ(Status(StatusCode::kNotFound, "c").under("b").under("a").message(), "a: b: c");
}

TEST(Status, StaysOkUnderAPrefix) {
  const Status status = Status().under("pool gradients");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
}

TEST(Result, HasTheNamesOfStdExpected) {
  const Result<int> held(7);
  const Result<int> none(Status(StatusCode::kNotFound, "gone"));
  EXPECT_TRUE(held && held.has_value());
  EXPECT_FALSE(none || none.has_value());
  EXPECT_EQ(held.value_or(1), 7);
  EXPECT_EQ(none.value_or(1), 1);
  EXPECT_EQ(none.error().message(), "gone");
  held.or_throw();
  EXPECT_THROW(none.or_throw(), Error);
}

}  // namespace
}  // namespace commpool
