// Programs with many pools: each pool finds addresses, and errors stay readable. The machine has an H200's memory.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class ManyPools : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=1,memory=141GiB,races=no", 1); }
  void SetUp() override { COMMPOOL_REQUIRE_EMULATOR("the machine's memory is declared"); }

  // One block in each pool.
  void Fill(int pools, Mode mode) {
    for (int number = 0; number < pools; ++number) {
      PoolConfiguration configuration = Configured(("pool" + std::to_string(number)).c_str());
      configuration.mode = mode;
      pools_.push_back(Create(std::move(configuration)));
      Result<CUdeviceptr> block = runtime().AllocateFrom(pools_.back(), kMiB, nullptr);
      ASSERT_TRUE(block.ok()) << "pool " << number << ": " << block.status().message();
      blocks_.push_back(*block);
    }
  }
  void TearDown() override {
    for (const CUdeviceptr block : blocks_) EXPECT_TRUE(runtime().Free(block).ok());
    for (const PoolHandle pool : pools_) EXPECT_TRUE(runtime().DestroyPool(pool).ok());
  }

 private:
  std::vector<PoolHandle> pools_;
  std::vector<CUdeviceptr> blocks_;
};

// A process does not have addresses for 464 times twice the device's memory.
TEST_F(ManyPools, ThatAreExpandableLeaveAddressesToOthers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer leaves addresses for five such pools";
#endif
  Fill(600, Mode::kExpandable);
  const PoolHandle fixed = Create(Configured("fixed"));
  EXPECT_TRUE(Get(fixed).mode().Reserve(64 * kGiB).ok());
  EXPECT_TRUE(runtime().DestroyPool(fixed).ok());
}

TEST_F(ManyPools, AreAFewLinesOfAnError) {
  Fill(300, Mode::kFixed);
  const PoolHandle needy = Create(Configured("needy"));
  const Status status = runtime().AllocateFrom(needy, 141 * kGiB, nullptr).status();
  ExpectFailure(status, StatusCode::kOutOfMemory, "282 others together      562 MiB");
  EXPECT_LT(std::count(status.message().begin(), status.message().end(), '\n'), 25) << status.message();
  EXPECT_TRUE(runtime().DestroyPool(needy).ok());
}

}  // namespace
}  // namespace commpool::internal::testing
