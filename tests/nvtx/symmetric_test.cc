// A symmetric pool on several ranks: each rank's pool is a domain, and its calls are ranges on its thread.
#include <algorithm>

#include "tests/nvtx/listener_fixture.h"
#include "tests/registration/symmetric_fixture.h"

namespace commpool::internal::testing {
namespace {

class SymmetricPools : protected Tool, public SymmetricTest {
 protected:
  long CountOf(const std::string& line) { return std::count(heard().lines.begin(), heard().lines.end(), line); }
};

TEST_F(SymmetricPools, EachRanksCallIsARange) {
  ExpectOk(Create());
  heard().lines.clear();
  ExpectOk(Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(8 * kMiB); }));
  // The call, and the agreement of the same name in it.
  EXPECT_EQ(CountOf("push reserve"), 2 * group().size());
  EXPECT_EQ(CountOf("pop reserve"), 2 * group().size());
  EXPECT_EQ(heard().domains.size(), static_cast<size_t>(group().size()));
}

TEST_F(SymmetricPools, ACallThatOneRankRefusesEndsItsRanges) {
  ExpectOk(Create());
  const Statuses refused =
      Run([&](Rank& rank) { return PoolOf(rank).mode().Reserve(rank.number == 0 ? 8 * kMiB : 1024 * kMiB * kMiB); });
  EXPECT_FALSE(refused.front().ok());
  EXPECT_EQ(CountOf("push reserve"), CountOf("pop reserve"));
}

}  // namespace
}  // namespace commpool::internal::testing
