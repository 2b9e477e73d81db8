// Programs with many pools: each pool finds addresses, and errors stay readable. BUILD gives the
// machine an H200's memory.
#include <algorithm>
#include <string>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class ManyPools : public PoolTest {
 protected:
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("the machine's memory is declared"); }

  // One block in each pool.
  void Fill(int pools, Mode mode) {
    for (int number = 0; number < pools; ++number) {
      const std::string name = "pool" + std::to_string(number);
      ASSERT_NE(Allocate(CreateWith({.name = name.c_str(), .mode = mode}), kMiB), 0u) << name;
    }
  }
};

// A process does not have addresses for 464 times twice the device's memory.
TEST_F(ManyPools, ThatAreExpandableLeaveAddressesToOthers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer leaves addresses for five such pools";
#endif
  Fill(600, Mode::kExpandable);
  ExpectOk(Get(Create(Configured("fixed"))).mode().Reserve(64 * kGiB));
}

TEST_F(ManyPools, AreAFewLinesOfAnError) {
  Fill(300, Mode::kFixed);
  const Status status = TryAllocate(Create(Configured("needy")), 141 * kGiB).status();
  ExpectFailure(status, StatusCode::kOutOfMemory, "282 others together      562 MiB");
  EXPECT_LT(std::count(status.message().begin(), status.message().end(), '\n'), 25) << status.message();
}

}  // namespace
}  // namespace commpool::internal::testing
