// Variables that begin like ours: slips are told, with the nearest name.
#include "src/library/base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace commpool::internal {
namespace {

std::vector<std::string> SlipsWith(const char* name) {
  setenv(name, "x", 1);
  std::vector<std::string> slips = Environment::Slips();
  unsetenv(name);
  return slips;
}

TEST(Environment, NamesTheNearestOfAVariableThatNothingReads) {
  EXPECT_EQ(SlipsWith("COMMPOOL_RECORDD"),
            std::vector<std::string>{"nothing reads the variable COMMPOOL_RECORDD; the nearest is COMMPOOL_RECORD"});
}

TEST(Environment, SaysNothingOfVariablesThatSomethingReads) {
  for (const char* name : {"COMMPOOL_RECORD", "COMMPOOL_INTERFACE", "COMMPOOL_NCCL_INCLUDE", "COMMPOOL_BAZEL_SKYLIB"}) {
    EXPECT_TRUE(SlipsWith(name).empty()) << name;
  }
}

TEST(Environment, SaysNothingOfVariablesOfOthers) { EXPECT_TRUE(SlipsWith("COMMPOOLING_RECORD").empty()); }

}  // namespace
}  // namespace commpool::internal
