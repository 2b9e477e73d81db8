// The frames that Python's fault handler writes, read.
#include "src/library/base/python_stack.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

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
