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

}  // namespace
}  // namespace commpool
