#include "tests/driver/emulator_fixture.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "src/library/driver/device_info.h"
#include "tests/driver/emulator_extension.h"

namespace commpool::internal::testing {

namespace {

std::shared_ptr<const Driver> Load() {
  const bool under_bazel = std::getenv("TEST_SRCDIR") != nullptr;
  Result<LoaderOptions> options =
      LoaderOptionsFromEnvironment(under_bazel ? DriverChoice::kEmulated : DriverChoice::kAuto);
  Result<std::shared_ptr<const Driver>> driver = options.ok() ? LoadDriver(*options) : options.status();
  if (!driver.ok()) {
    std::fprintf(stderr, "these tests need a driver: %s\n", driver.status().message().c_str());
    std::exit(1);
  }
  std::printf("driver: %s\n", (*driver)->description.c_str());
  return *driver;
}

std::vector<std::string> Lines(size_t (*write)(char*, size_t)) {
  std::vector<std::string> lines;
  if (write == nullptr) return lines;
  std::vector<char> text(1 << 20);
  write(text.data(), text.size());
  std::istringstream stream(text.data());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

const std::shared_ptr<const Driver>& SharedDriver() {
  static const std::shared_ptr<const Driver> driver = Load();
  return driver;
}

bool OnEmulator() { return SharedDriver()->kind == DriverChoice::kEmulated; }

int DeviceCountOfTests() { return DeviceCount(*SharedDriver()).value(); }

std::vector<std::string> EmulatorLeaks() { return Lines(COMMPOOL_EXTENSION(commpoolEmulatorLeaks)); }

std::vector<std::string> EmulatorReports() { return Lines(COMMPOOL_EXTENSION(commpoolEmulatorReports)); }

void ClearEmulatorReports() {
  const auto clear = COMMPOOL_EXTENSION(commpoolEmulatorClearReports);
  if (clear != nullptr) clear();
}

uint64_t CallCount(const char* call) {
  const auto count = COMMPOOL_EXTENSION(commpoolEmulatorCallCount);
  return count == nullptr ? 0 : count(call);
}

void ExpectCalls(const char* call, uint64_t before, uint64_t expected, const char* file, int line) {
  const uint64_t made = CallCount(call) - before;
  if (!OnEmulator() || made == expected) return;
  ADD_FAILURE_AT(file, line) << call << " was called " << made << " times, not " << expected;
}

std::string EmulatorSetting(const char* key) {
  const auto setting = COMMPOOL_EXTENSION(commpoolEmulatorSetting);
  const char* value = setting == nullptr ? nullptr : setting(key);
  return value == nullptr ? "" : value;
}

InjectedFault::InjectedFault(const Fault& fault) {
  const auto inject = COMMPOOL_EXTENSION(commpoolEmulatorInjectFault);
  if (inject == nullptr) {
    ADD_FAILURE() << "a fault is injected on hardware: begin the test with COMMPOOL_REQUIRE_EMULATOR";
    return;
  }
  inject(fault.call, fault.skip, fault.count, fault.result);
}

InjectedFault::~InjectedFault() {
  const auto clear = COMMPOOL_EXTENSION(commpoolEmulatorClearFaults);
  if (clear != nullptr) clear();
}

DriverTest::DriverTest() : leaks_before_(EmulatorLeaks()) { ClearEmulatorReports(); }

DriverTest::~DriverTest() {
  for (const std::string& leak : NewLeaks()) ADD_FAILURE() << "leaked: " << leak;
  for (const std::string& report : TakeReports()) ADD_FAILURE() << "broken rule: " << report;
}

std::vector<std::string> DriverTest::NewLeaks() const {
  std::map<std::string, int> known;
  for (const std::string& line : leaks_before_) ++known[line];
  std::vector<std::string> leaks;
  for (const std::string& line : EmulatorLeaks()) {
    const bool allowed = std::any_of(allowed_leaks_.begin(), allowed_leaks_.end(), [&](const std::string& fragment) {
      return line.find(fragment) != std::string::npos;
    });
    if (!allowed && --known[line] < 0) leaks.push_back(line);
  }
  return leaks;
}

std::vector<std::string> DriverTest::TakeReports() {
  std::vector<std::string> reports = EmulatorReports();
  ClearEmulatorReports();
  return reports;
}

void DriverTest::ExpectOneReport(const std::vector<std::string>& fragments) {
  const std::vector<std::string> reports = TakeReports();
  ASSERT_EQ(reports.size(), 1u) << ::testing::PrintToString(reports);
  for (const std::string& fragment : fragments) {
    EXPECT_NE(reports[0].find(fragment), std::string::npos) << fragment << " in " << reports[0];
  }
}

void EmulatorTest::SetUp() { COMMPOOL_REQUIRE_EMULATOR("the test is about it alone"); }

}  // namespace commpool::internal::testing
