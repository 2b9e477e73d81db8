#include "src/base/interface.h"

#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

TEST(InterfaceMatches, ComparesPrefixesOfAList) {
  EXPECT_TRUE(InterfaceMatches("eth0", "eth"));
  EXPECT_TRUE(InterfaceMatches("ib0", "eth,ib"));
  EXPECT_FALSE(InterfaceMatches("wlan0", "eth,ib"));
}

TEST(InterfaceMatches, ExcludesAfterACaret) {
  EXPECT_FALSE(InterfaceMatches("docker0", "^docker,lo"));
  EXPECT_FALSE(InterfaceMatches("lo", "^docker,lo"));
  EXPECT_TRUE(InterfaceMatches("eth0", "^docker,lo"));
}

TEST(InterfaceMatches, ComparesWholeNamesAfterAnEqualSign) {
  EXPECT_TRUE(InterfaceMatches("eth1", "=eth1,eth2"));
  EXPECT_FALSE(InterfaceMatches("eth10", "=eth1,eth2"));
  EXPECT_FALSE(InterfaceMatches("eth1", "^=eth1"));
}

TEST(InterfaceMatches, NamesNothingWithAnEmptyPattern) {
  EXPECT_FALSE(InterfaceMatches("eth0", ""));
  EXPECT_FALSE(InterfaceMatches("eth0", ",,"));
}

TEST(HostAddress, IsTheAddressThatWasAskedFor) { EXPECT_EQ(HostAddress("10.77.0.1"), "10.77.0.1"); }

TEST(HostAddress, IsThatOfTheNamedInterface) { EXPECT_EQ(HostAddress("=lo"), "127.0.0.1"); }

TEST(HostAddress, FallsBackToLoopback) { EXPECT_EQ(HostAddress("=no-such-interface"), "127.0.0.1"); }

}  // namespace
}  // namespace commpool::internal
