// The frames of a program in C++, and those that Python's fault handler writes, read.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/library/base/native_stack.h"
#include "src/library/base/python_stack.h"

namespace commpool::internal {
namespace {

TEST(NativeStack, BeginsInTheFunctionThatAsked) {
  const std::string stack = NativeStack();
  EXPECT_NE(stack.substr(0, stack.find('\n')).find("stacks_test"), std::string::npos) << stack;
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

TEST(PythonStack, FramesAreReadFromWhatPythonWrites) {
  const std::string dump =
      "Stack (most recent call first):\n"
      "  File \"jobs of mine/train.py\", line 12 in step\n"
      "  File \"jobs of mine/train.py\", line 40 in <module>\n"
      "  ...\n";
  EXPECT_EQ(ReadFrames(dump), "jobs of mine/train.py:12 step\njobs of mine/train.py:40 <module>");
}

TEST(PythonStack, IsEmptyWherePythonIsAbsent) {
  EXPECT_EQ(PythonStack([](const char* name) { return dlsym(RTLD_DEFAULT, name); }), "");
}

}  // namespace
}  // namespace commpool::internal
