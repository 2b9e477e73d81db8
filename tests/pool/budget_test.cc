// A limit that several pools share, beside their own and their device's. Each emulated device has 64 MiB.
#include <cstdlib>

#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Budget : public PoolTest {
 protected:
  static void SetUpTestSuite() { setenv("COMMPOOL_EMULATOR", "devices=2,memory=64MiB", 1); }
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it fills a small machine");
    runtime().devices().SetBudget("kv", 24 * kMiB);
  }

  PoolHandle Make(const char* name, const char* budget, int device = 0) {
    PoolConfiguration configuration = Configured(name, device);
    configuration.budget = budget;
    return Create(configuration);
  }
  MemoryAccount& Account(int device = 0, const char* budget = "kv") {
    return *runtime().devices().AccountOf({.device = device}, budget).value();
  }
  Result<CUdeviceptr> Allocate(PoolHandle pool, uint64_t bytes) { return runtime().AllocateFrom(pool, bytes, nullptr); }
};

TEST_F(Budget, LimitsItsPoolsTogetherAndNoOthers) {
  const PoolHandle pages = Make("pages", "kv");
  const PoolHandle scales = Make("scales", "kv");
  const PoolHandle weights = Make("weights", "");
  const CUdeviceptr block = Allocate(pages, 20 * kMiB).value();
  const Status refused = Allocate(scales, 8 * kMiB).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(refused.message().find("would exceed the limit of budget kv of device 0, 24 MiB"), std::string::npos)
      << refused.message();
  Free(Allocate(weights, 30 * kMiB).value());
  Free(block);
}

TEST_F(Budget, LiesWithinTheDevicesLimit) {
  runtime().devices().Get(0).value()->account().SetLimit(16 * kMiB);
  const PoolHandle pages = Make("pages", "kv");
  const Status refused = Allocate(pages, 20 * kMiB).status();
  EXPECT_NE(refused.message().find("would exceed the limit of device 0, 16 MiB"), std::string::npos)
      << refused.message();
  EXPECT_EQ(Account().taken(), 0u) << "a refusal takes nothing";
  Free(Allocate(pages, 16 * kMiB).value());
  EXPECT_EQ(Account(0, "").taken(), 16 * kMiB) << "a budget's bytes are the device's too";
}

TEST_F(Budget, MakesItsPoolsGiveBackWhatTheyDoNotUse) {
  const PoolHandle idle = Make("idle", "kv");
  const PoolHandle needy = Make("needy", "kv");
  Free(Allocate(idle, 20 * kMiB).value());
  const CUdeviceptr block = Allocate(needy, 16 * kMiB).value();
  EXPECT_EQ(CountersOf(idle).reserved_bytes.current, 0u);
  Free(block);
}

TEST_F(Budget, ThatIsFullLeavesPoolsOutsideOfItAlone) {
  const PoolHandle weights = Make("weights", "");
  const PoolHandle needy = Make("needy", "kv");
  Free(Allocate(weights, 20 * kMiB).value());
  const CUdeviceptr block = Allocate(needy, 20 * kMiB).value();
  EXPECT_EQ(Allocate(needy, 20 * kMiB).status().code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(CountersOf(weights).reserved_bytes.current, 20 * kMiB) << "their memory lifts no budget";
  Free(block);
}

TEST_F(Budget, IsOneOfEachDevice) {
  const CUdeviceptr here = Allocate(Make("here", "kv"), 20 * kMiB).value();
  const CUdeviceptr there = Allocate(Make("there", "kv", 1), 20 * kMiB).value();
  EXPECT_EQ(Account(0).taken(), 20 * kMiB);
  EXPECT_EQ(Account(1).taken(), 20 * kMiB);
  Free(here);
  Free(there);
}

TEST_F(Budget, KeepsItsPeakAndMayChange) {
  const PoolHandle pages = Make("pages", "kv");
  Free(Allocate(pages, 20 * kMiB).value());
  ASSERT_TRUE(Get(pages).Trim(0).ok());
  EXPECT_EQ(Account().taken(), 0u);
  EXPECT_EQ(Account().peak(), 20 * kMiB);
  runtime().devices().SetBudget("kv", 4 * kMiB);
  EXPECT_EQ(Allocate(pages, 8 * kMiB).status().code(), StatusCode::kOutOfMemory);
}

TEST_F(Budget, ThatNobodyMadeIsAnError) {
  PoolConfiguration configuration = Configured("pages");
  configuration.budget = "none such";
  ExpectFailure(runtime().CreatePool(configuration).status(), StatusCode::kNotFound,
                "there is no budget named none such");
}

TEST_F(Budget, SortsTheTableOfAnError) {
  runtime().devices().SetBudget("weights", 40 * kMiB);
  const CUdeviceptr large = Allocate(Make("large", "weights"), 32 * kMiB).value();
  const CUdeviceptr pages = Allocate(Make("pages", "kv"), 12 * kMiB).value();
  const CUdeviceptr other = Allocate(Make("other", ""), 16 * kMiB).value();
  const std::string message = Allocate(Make("small", "weights"), 12 * kMiB).status().message();
  size_t last = 0;
  for (const char* const line :
       {"\n  budget weights: 32 MiB of 40 MiB, 32 MiB at peak", "\n  large ", "\n  small ",
        "\n  budget kv: 12 MiB of 24 MiB, 12 MiB at peak", "\n  pages ", "\n  without a budget:", "\n  other "}) {
    const size_t at = message.find(line);
    ASSERT_NE(at, std::string::npos) << line << message;
    EXPECT_GT(at, last) << line << message;
    last = at;
  }
  for (const CUdeviceptr block : {large, pages, other}) Free(block);
}

}  // namespace
}  // namespace commpool::internal::testing
