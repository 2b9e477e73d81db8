#include "src/emulator/nccl/driver.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "src/emulator/driver_library.h"

namespace commpool::internal::emulated_nccl {

namespace {

constexpr const char* kLibrary = "NCCL";

DriverFunctions Load() {
  void* library = FindDriverLibrary(kLibrary);
  DriverFunctions driver;
#define COMMPOOL_FIND(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(FindDriverSymbol(kLibrary, library, COMMPOOL_TEXT(name)));
  COMMPOOL_EMULATED_NCCL_DRIVER_FUNCTIONS(COMMPOOL_FIND)
#undef COMMPOOL_FIND
  return driver;
}

int ParseVersion(const std::string& text) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch) < 2) {
    RefuseToRun(kLibrary, "the emulator's description says nccl=" + text + ": write it like 2.28.9");
  }
  return major * 10000 + minor * 100 + patch;
}

}  // namespace

const DriverFunctions& GetDriver() {
  static const DriverFunctions driver = Load();
  return driver;
}

int NumberSetting(const char* key, int fallback) {
  const char* value = GetDriver().commpoolEmulatorSetting(key);
  if (value == nullptr) return fallback;
  const std::string_view text = value;
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? number : fallback;
}

std::string TextSetting(const char* key, const char* fallback) {
  const char* value = GetDriver().commpoolEmulatorSetting(key);
  return value != nullptr ? value : fallback;
}

const char* NcclVariable(const char* name) {
  static std::mutex reading;
  static auto* const read = new std::map<std::string, std::optional<std::string>>;  // programs call NCCL at exit
  const std::lock_guard lock(reading);
  const auto [found, first] = read->try_emplace(name);
  if (const char* const value = first ? std::getenv(name) : nullptr) found->second = value;
  return found->second ? found->second->c_str() : nullptr;
}

bool IsSwitchedOff(const char* variable) {
  const char* const value = NcclVariable(variable);
  return value != nullptr && std::string(value) == "0";
}

int ClaimedVersion() {
  static const int version = ParseVersion(TextSetting("nccl", "2.28.9"));
  return version;
}

int TimeoutMilliseconds() {
  static const int timeout = NumberSetting("nccl_timeout_ms", 60000);
  return timeout;
}

bool MovesBytes() {
  static const bool moves = std::string_view(GetDriver().commpoolEmulatorSetting("kernels")) != "none";
  return moves;
}

bool RunsAlone() {
  static const bool alone = TextSetting("ranks", "all") == "one";
  return alone;
}

CurrentContext::CurrentContext(CUcontext context) {
  GetDriver().cuCtxGetCurrent(&saved_);
  GetDriver().cuCtxSetCurrent(context);
}

CurrentContext::~CurrentContext() { GetDriver().cuCtxSetCurrent(saved_); }

}  // namespace commpool::internal::emulated_nccl
