// Shared by tests that need a CUDA driver: the driver, and a fixture that finds leaks.
//
//   class Segments : public commpool::internal::testing::DriverTest {};
//   TEST_F(Segments, GiveTheirMemoryBack) { ... driver().cuda.cuMemCreate(...) ... }
//
// COMMPOOL_DRIVER chooses the driver: unset means emulated under Bazel, auto elsewhere. On hardware the emulator's
// functions below answer "nothing", and COMMPOOL_REQUIRE_EMULATOR skips the test with a reason. One thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/library/driver/loader.h"
#include "tests/base/expect_status.h"

namespace commpool::internal::testing {

// The process's one driver. Without a driver the process ends with the reason.
const std::shared_ptr<const Driver>& SharedDriver();
bool OnEmulator();
int DeviceCountOfTests();

// Answers of the emulator; empty or 0 on hardware.
std::vector<std::string> EmulatorLeaks();    // live resources, one a line
std::vector<std::string> EmulatorReports();  // broken rules since the last ClearEmulatorReports
void ClearEmulatorReports();
uint64_t CallCount(const char* call);  // of a driver or NCCL function in this process; "*" for all
// Expects so many calls since `before`, a CallCount. Expects nothing on hardware, which counts no calls.
void ExpectCalls(const char* call, uint64_t before, uint64_t expected, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());
std::string EmulatorSetting(const char* key);  // of COMMPOOL_EMULATOR, defaults included

// After `skip` more calls of `call` the next `count` do nothing and return `result` (a CUresult or an ncclResult_t).
struct Fault {
  const char* call;
  int result;
  int skip = 0;
  int count = 1;
};
// The fault ends with its scope, used or not.
class [[nodiscard]] InjectedFault {
 public:
  explicit InjectedFault(const Fault& fault);
  ~InjectedFault();
  InjectedFault(const InjectedFault&) = delete;
  InjectedFault& operator=(const InjectedFault&) = delete;
};

// Each test begins without faults and reports. It fails if it ends with one more live resource, or broke a rule of the
// emulator. The check runs after the members of derived fixtures are destroyed.
class DriverTest : public ::testing::Test {
 protected:
  DriverTest();
  ~DriverTest() override;

  const Driver& driver() const { return *SharedDriver(); }
  const std::shared_ptr<const Driver>& shared_driver() const { return SharedDriver(); }

  // Returns the rules that the test broke on purpose, and forgets them.
  static std::vector<std::string> TakeReports();
  // Expects exactly one, with these fragments, and forgets it.
  static void ExpectOneReport(const std::vector<std::string>& fragments);
  // Leaks whose line contains `fragment` do not fail the test: for what lives as long as the process.
  void AllowLeak(const std::string& fragment) { allowed_leaks_.push_back(fragment); }

 private:
  std::vector<std::string> NewLeaks() const;

  std::vector<std::string> leaks_before_;  // of earlier tests, which have failed for them
  std::vector<std::string> allowed_leaks_;
};

// A DriverTest that needs the emulator.
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
