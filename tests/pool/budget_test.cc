// A limit that several pools share, beside their own and their device's. Each emulated device has 64 MiB: BUILD sets
// it.
#include "tests/pool/pool_fixture.h"

namespace commpool::internal::testing {
namespace {

class Budget : public PoolTest {
 protected:
  void SetUp() override {
    COMMPOOL_REQUIRE_EMULATOR("it fills a small machine");
    runtime().devices().SetBudget("kv", 24 * kMiB);
  }

  static PoolConfiguration Of(const char* budget, const char* name, int device = 0) {
    PoolConfiguration configuration = Configured(name, device);
    configuration.budget = budget;
    return configuration;
  }
  PoolHandle Make(const char* name, const char* budget, int device = 0) { return Create(Of(budget, name, device)); }
  MemoryAccount& Account(int device = 0, const char* budget = "kv") {
    return *runtime().devices().AccountOf({.device = device}, budget).value();
  }
  // Expects that the pool grows no further, and why.
  void ExpectRefused(PoolHandle pool, uint64_t bytes, const std::string& why) {
    ExpectFailure(TryAllocate(pool, bytes).status(), StatusCode::kOutOfMemory, why);
  }
};

TEST_F(Budget, LimitsItsPoolsTogetherAndNoOthers) {
  const PoolHandle pages = Make("pages", "kv");
  const PoolHandle scales = Make("scales", "kv");
  const PoolHandle weights = Make("weights", "");
  Allocate(pages, 20 * kMiB);
  ExpectRefused(scales, 8 * kMiB, "would exceed the limit of budget kv of device 0, 24 MiB");
  Free(Allocate(weights, 30 * kMiB));
}

TEST_F(Budget, LiesWithinTheDevicesLimit) {
  runtime().devices().Get(0).value()->account().SetLimit(16 * kMiB);
  const PoolHandle pages = Make("pages", "kv");
  ExpectRefused(pages, 20 * kMiB, "would exceed the limit of device 0, 16 MiB");
  EXPECT_EQ(Account().taken(), 0u) << "a refusal takes nothing";
  Free(Allocate(pages, 16 * kMiB));
  EXPECT_EQ(Account(0, "").taken(), 16 * kMiB) << "a budget's bytes are the device's too";
}

TEST_F(Budget, MakesItsPoolsGiveBackWhatTheyDoNotUse) {
  const PoolHandle idle = Make("idle", "kv");
  const PoolHandle needy = Make("needy", "kv");
  Free(Allocate(idle, 20 * kMiB));
  Allocate(needy, 16 * kMiB);
  EXPECT_EQ(Reserved(idle), 0u);
}

TEST_F(Budget, ThatIsFullLeavesPoolsOutsideOfItAlone) {
  const PoolHandle weights = Make("weights", "");
  const PoolHandle needy = Make("needy", "kv");
  Free(Allocate(weights, 20 * kMiB));
  Allocate(needy, 20 * kMiB);
  ExpectRefused(needy, 20 * kMiB, "");
  EXPECT_EQ(Reserved(weights), 20 * kMiB) << "their memory lifts no budget";
}

TEST_F(Budget, IsOneOfEachDevice) {
  Allocate(Make("here", "kv"), 20 * kMiB);
  Allocate(Make("there", "kv", 1), 20 * kMiB);
  EXPECT_EQ(Account(0).taken(), 20 * kMiB);
  EXPECT_EQ(Account(1).taken(), 20 * kMiB);
}

TEST_F(Budget, KeepsItsPeakAndMayChange) {
  const PoolHandle pages = Make("pages", "kv");
  Free(Allocate(pages, 20 * kMiB));
  ASSERT_TRUE(Get(pages).Trim(0).ok());
  EXPECT_EQ(Account().taken(), 0u);
  EXPECT_EQ(Account().peak(), 20 * kMiB);
  runtime().devices().SetBudget("kv", 4 * kMiB);
  ExpectRefused(pages, 8 * kMiB, "");
}

TEST_F(Budget, ThatNobodyMadeIsAnError) {
  ExpectFailure(runtime().CreatePool(Of("none such", "pages")).status(), StatusCode::kNotFound,
                "there is no budget named none such");
}

TEST_F(Budget, SortsTheTableOfAnError) {
  runtime().devices().SetBudget("weights", 40 * kMiB);
  Allocate(Make("large", "weights"), 32 * kMiB);
  Allocate(Make("pages", "kv"), 12 * kMiB);
  Allocate(Make("other", ""), 16 * kMiB);
  const std::string message = TryAllocate(Make("small", "weights"), 12 * kMiB).status().message();
  size_t last = 0;
  for (const char* const line :
       {"\n  budget weights: 32 MiB of 40 MiB, 32 MiB at peak", "\n  large ", "\n  small ",
        "\n  budget kv: 12 MiB of 24 MiB, 12 MiB at peak", "\n  pages ", "\n  without a budget:", "\n  other "}) {
    const size_t at = message.find(line);
    ASSERT_NE(at, std::string::npos) << line << message;
    EXPECT_GT(at, last) << line << message;
    last = at;
  }
}

}  // namespace
}  // namespace commpool::internal::testing
