#include "src/library/base/environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "src/library/base/nearest.h"
#include "src/library/base/printable.h"

namespace commpool::internal {

namespace {

constexpr std::string_view kOurs = "COMMPOOL_";
// Of the build and the tests, beside COMMPOOL_..._INCLUDE and COMMPOOL_BAZEL_...
constexpr std::array<std::string_view, 7> kOfTheBuild = {
    "COMMPOOL_D3",    "COMMPOOL_GOOGLETEST",  "COMMPOOL_LIBRARIES",    "COMMPOOL_PAGE_PICTURE",
    "COMMPOOL_TORCH", "COMMPOOL_TEST_EVENTS", "COMMPOOL_TEST_LISTENER"};
// Of the library, the Python package and the programs.
constexpr std::array<std::string_view, 18> kVariables = {
    "COMMPOOL_DRIVER",       "COMMPOOL_NCCL",          "COMMPOOL_EMULATOR",       "COMMPOOL_EMULATOR_LIBRARIES",
    "COMMPOOL_CONF",         "COMMPOOL_LIBRARY",       "COMMPOOL_TORCH_ROUTER",   "COMMPOOL_TORCH_CALL_LINES",
    "COMMPOOL_CACHE",        "COMMPOOL_LOG",           "COMMPOOL_EMULATOR_TORCH", "COMMPOOL_RECORD",
    "COMMPOOL_RECORD_LIMIT", "COMMPOOL_RECORD_STACKS", "COMMPOOL_AUDIT",          "COMMPOOL_RUN",
    "COMMPOOL_INTERFACE",    "COMMPOOL_SOCKETS"};

bool IsKnown(std::string_view name) {
  const auto has = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return has(kVariables) || has(kOfTheBuild) || name.ends_with("_INCLUDE") || name.starts_with("COMMPOOL_BAZEL_");
}

}  // namespace

const Environment& Environment::Get() {
  static const auto* const environment = new Environment();  // not destroyed: destructors of static objects call us
  return *environment;
}

bool Environment::Trusted() { return getauxval(AT_SECURE) == 0; }

std::string Environment::Variable(const char* name) {
  const char* const value = Trusted() ? std::getenv(name) : nullptr;
  return value == nullptr ? "" : value;
}

std::vector<std::string> Environment::Slips() {
  std::vector<std::string> slips;
  for (char** entry = Trusted() ? environ : nullptr; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kOurs) || IsKnown(name)) continue;
    slips.push_back("nothing reads the variable " + Printable(name) + "; the nearest is " +
                    std::string(Nearest(name, kVariables)));
  }
  return slips;
}

std::string Environment::FirstOf(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (std::string value = Variable(name); !value.empty()) return value;
  }
  return "";
}

}  // namespace commpool::internal
