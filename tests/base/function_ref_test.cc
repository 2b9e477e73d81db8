// References to functions that the caller keeps.
#include "src/library/base/function_ref.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace commpool::internal {
namespace {

TEST(FunctionRef, CallsItsFunction) {
  int calls = 0;
  const auto count = [&](int by) { return calls += by; };
  const FunctionRef<int(int)> function = count;
  EXPECT_EQ(function(2), 2);
  EXPECT_EQ(function(3), 5);
  EXPECT_EQ(calls, 5);
}

TEST(FunctionRef, IsTwoPointersForAnyFunction) {
  const std::array<std::string, 8> known = {"a", "b"};
  const auto sum = [known] { return known[0] + known[1]; };
  const FunctionRef<std::string()> function = sum;
  EXPECT_EQ(function(), "ab");
  EXPECT_EQ(sizeof(function), 2 * sizeof(void*));
}

TEST(FunctionRef, MayBeEmpty) {
  EXPECT_FALSE(FunctionRef<void()>());
  const auto nothing = [] {};
  EXPECT_TRUE(FunctionRef<void()>(nothing));
}

}  // namespace
}  // namespace commpool::internal
