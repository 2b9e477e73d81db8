// The frames of a program in C++.
#include "src/library/base/native_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace commpool::internal {
namespace {

TEST(NativeStack, BeginsInTheFunctionThatAsked) {
  const std::string stack = NativeStack();
  EXPECT_NE(stack.substr(0, stack.find('\n')).find("native_stack_test"), std::string::npos) << stack;
}

TEST(NativeStack, NamesWhatALibraryExports) {
  static std::string stack;
  int numbers[] = {2, 1};
  std::qsort(numbers, 2, sizeof(int), [](const void*, const void*) {
    stack = NativeStack();
    return 0;
  });
  EXPECT_NE(stack.find("qsort"), std::string::npos) << stack;
  EXPECT_NE(stack.find("(libc.so.6)"), std::string::npos) << stack;
}

TEST(NativeStack, IsNotEndless) {
  const std::string stack = NativeStack();
  EXPECT_LE(std::count(stack.begin(), stack.end(), '\n'), 12) << stack;
}

}  // namespace
}  // namespace commpool::internal
