// What tests that need a CUDA driver share: the driver itself, and a fixture that lets nothing leak.
//
//   class Segments : public commpool::internal::testing::DriverTest {};
//   TEST_F(Segments, GiveTheirMemoryBack) { ... driver().cuda.cuMemCreate(...) ... }
//
// COMMPOOL_DRIVER picks the driver: unset means emulated under Bazel, auto elsewhere. On hardware the questions to the
// emulator answer "nothing", and COMMPOOL_REQUIRE_EMULATOR skips the test with a reason. One thread at a time.
#ifndef COMMPOOL_TESTS_DRIVER_EMULATOR_FIXTURE_H_
#define COMMPOOL_TESTS_DRIVER_EMULATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "src/driver/loader.h"

namespace commpool::internal::testing {

// The process's one driver; a process without one ends with the reason.
const std::shared_ptr<const Driver>& SharedDriver();
bool OnEmulator();
int DeviceCountOfTests();

// Of the emulator. Empty or 0 on hardware.
std::vector<std::string> EmulatorLeaks();    // live resources, one a line
std::vector<std::string> EmulatorReports();  // broken rules since the last ClearEmulatorReports
void ClearEmulatorReports();
uint64_t CallCount(const char* call);  // of a driver or NCCL function in this process; "*" for all
// So many calls since `before`, a CallCount; hardware counts none, and nothing is expected there.
void ExpectCalls(const char* call, uint64_t before, uint64_t expected,
                 std::source_location from = std::source_location::current());
std::string EmulatorSetting(const char* key);  // of COMMPOOL_EMULATOR, defaults included

// After `skip` more calls of `call` the next `count` answer `result` (a CUresult or an ncclResult_t) and do nothing.
struct Fault {
  const char* call;
  int result;
  int skip = 0;
  int count = 1;
};
// A fault ends with its scope, used up or not.
class [[nodiscard]] InjectedFault {
 public:
  explicit InjectedFault(const Fault& fault);
  ~InjectedFault();
  InjectedFault(const InjectedFault&) = delete;
  InjectedFault& operator=(const InjectedFault&) = delete;
};

// Each test starts with no fault and no report, and fails where it ends with one more live resource or a broken rule
// on the emulator. The check runs after the members of derived fixtures are destroyed.
class DriverTest : public ::testing::Test {
 protected:
  DriverTest();
  ~DriverTest() override;

  const Driver& driver() const { return *SharedDriver(); }
  const std::shared_ptr<const Driver>& shared_driver() const { return SharedDriver(); }

  // The broken rules so far, which the test meant to break. They are forgotten.
  static std::vector<std::string> TakeReports();
  // Leak lines that contain `fragment` are no failure: for what lives as long as the process.
  void AllowLeak(const std::string& fragment) { allowed_leaks_.push_back(fragment); }

 private:
  std::vector<std::string> NewLeaks() const;

  std::vector<std::string> leaks_before_;  // of an earlier test, which has failed for them
  std::vector<std::string> allowed_leaks_;
};

// A DriverTest that is about the emulator alone.
class EmulatorTest : public DriverTest {
 protected:
  void SetUp() override;
};

}  // namespace commpool::internal::testing

#define COMMPOOL_REQUIRE_EMULATOR(reason) \
  if (!::commpool::internal::testing::OnEmulator()) GTEST_SKIP() << "needs the emulator: " << (reason)
#define COMMPOOL_REQUIRE_DEVICES(number)                              \
  if (::commpool::internal::testing::DeviceCountOfTests() < (number)) \
  GTEST_SKIP() << "needs " << (number) << " devices, there are " << ::commpool::internal::testing::DeviceCountOfTests()
#define COMMPOOL_REQUIRE_NCCL()                                         \
  if (!::commpool::internal::testing::SharedDriver()->nccl.available()) \
  GTEST_SKIP() << "needs NCCL: " << ::commpool::internal::testing::SharedDriver()->nccl.why_missing

#endif  // COMMPOOL_TESTS_DRIVER_EMULATOR_FIXTURE_H_
