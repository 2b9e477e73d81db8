#include "src/library/base/interface.h"

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

TEST(FindHostAddress, IsTheAddressThatWasAskedFor) {
  EXPECT_EQ(FindHostAddress("10.77.0.1").text, "10.77.0.1");
  EXPECT_EQ(FindHostAddress("10.77.0.1").why_local, "");
}

TEST(FindHostAddress, SaysThatOnlyThisHostReachesLoopback) {
  EXPECT_EQ(FindHostAddress("=lo").text, "127.0.0.1");
  EXPECT_EQ(FindHostAddress("=lo").why_local, "\"=lo\" leads to the interface lo");
  EXPECT_EQ(FindHostAddress("127.0.0.2").why_local, "it was asked for by its address");
}

TEST(FindHostAddress, FallsBackToLoopbackAndSaysWhy) {
  const HostAddress found = FindHostAddress("=no-such-interface");
  EXPECT_EQ(found.text, "127.0.0.1");
  EXPECT_EQ(found.why_local, "no interface that is up has an IPv4 address and fits \"=no-such-interface\"");
}

TEST(InterfaceCheck, AcceptsAnEmptyTextAndAnAddress) {
  EXPECT_TRUE(CheckInterface("").ok());
  EXPECT_TRUE(CheckInterface("10.77.0.1").ok());
}

TEST(InterfaceCheck, RefusesAMissingInterfaceAndListsTheOthers) {
  const Status status = CheckInterface("=nowhere0");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const std::string opening =
      "COMMPOOL_INTERFACE is \"=nowhere0\": it may be an address or name an interface of this host: ";
  ASSERT_EQ(status.message().substr(0, opening.size()), opening);
  const std::string known = status.message().substr(opening.size());
  if (known == "none is up") GTEST_SKIP() << "no interface of this machine is up";
  EXPECT_TRUE(CheckInterface("=" + known.substr(0, known.find(','))).ok()) << known;
}

}  // namespace
}  // namespace commpool::internal
