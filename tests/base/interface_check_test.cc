#include "src/base/interface_check.h"

#include <gtest/gtest.h>

namespace commpool::internal {
namespace {

TEST(InterfaceCheck, TakesNothingAndAddresses) {
  EXPECT_TRUE(CheckInterface("").ok());
  EXPECT_TRUE(CheckInterface("10.77.0.1").ok());
}

TEST(InterfaceCheck, RefusesAnInterfaceThatIsNotHereAndListsThoseThatAre) {
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
