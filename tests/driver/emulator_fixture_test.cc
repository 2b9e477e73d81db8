// The fixture that finds leaks and broken rules finds them.
#include "tests/driver/emulator_fixture.h"

#include <gtest/gtest-spi.h>

#include "src/library/driver/handles.h"
#include "tests/driver/emulator_extension.h"

namespace commpool::internal::testing {
namespace {

class Inner : public DriverTest {
 public:
  void AllowContexts() { AllowLeak("context"); }
  void TestBody() override {}
};

class Fixture : public EmulatorTest {
 protected:
  static void BreakARule() { COMMPOOL_EXTENSION(commpoolEmulatorReport)("a test breaks a rule", "on purpose"); }
};

PrimaryContext leaked_context;

void Leak() {
  const Inner test;
  leaked_context = PrimaryContext::Retain(*SharedDriver(), 0).value();
}

TEST_F(Fixture, FailsATestThatLeaks) {
  EXPECT_NONFATAL_FAILURE(Leak(), "leaked: ");
  leaked_context = PrimaryContext();
}

TEST_F(Fixture, PassesALeakThatIsAllowed) {
  {
    Inner test;
    test.AllowContexts();
    leaked_context = PrimaryContext::Retain(driver(), 0).value();
  }
  leaked_context = PrimaryContext();
}

TEST_F(Fixture, BlamesATestForItsOwnLeaksAlone) {
  leaked_context = PrimaryContext::Retain(driver(), 0).value();
  { const Inner test; }
  leaked_context = PrimaryContext();
}

TEST_F(Fixture, FailsATestThatBreaksARule) {
  EXPECT_NONFATAL_FAILURE(
      {
        const Inner test;
        BreakARule();
      },
      "broken rule: ");
}

TEST_F(Fixture, HandsOutReportsOnce) {
  BreakARule();
  EXPECT_EQ(TakeReports().size(), 1u);
  EXPECT_EQ(TakeReports().size(), 0u);
}

TEST_F(Fixture, EndsAFaultWithItsScope) {
  const auto count = [&] {
    int devices = 0;
    return driver().cuda.cuDeviceGetCount(&devices);
  };
  {
    const InjectedFault fault({.call = "cuDeviceGetCount", .result = CUDA_ERROR_UNKNOWN, .skip = 1, .count = 2});
    EXPECT_EQ(count(), CUDA_SUCCESS);
    EXPECT_EQ(count(), CUDA_ERROR_UNKNOWN);
  }
  EXPECT_EQ(count(), CUDA_SUCCESS);
}

TEST_F(Fixture, CountsCalls) {
  const uint64_t before = CallCount("cuDeviceGetCount");
  DeviceCountOfTests();
  EXPECT_EQ(CallCount("cuDeviceGetCount"), before + 1);
  EXPECT_FALSE(EmulatorSetting("devices").empty());
  EXPECT_EQ(EmulatorSetting("no such key"), "");
}

}  // namespace
}  // namespace commpool::internal::testing
