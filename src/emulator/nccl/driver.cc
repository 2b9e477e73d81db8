#include "src/emulator/nccl/driver.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace commpool::internal::emulated_nccl {

namespace {

#define COMMPOOL_TEXT_OF(name) #name
#define COMMPOOL_TEXT(name) COMMPOOL_TEXT_OF(name)

constexpr const char* kMarker = "commpoolEmulatorLaunch";

[[noreturn]] void Refuse(const std::string& reason) {
  std::fprintf(stderr, "commpool: the emulated NCCL cannot run: %s\n", reason.c_str());
  std::abort();
}

// The folder of this library's own file.
std::string OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

// A handle in which every driver symbol is looked up: that of the library which holds the marker.
void* HandleOf(void* marker) {
  Dl_info info = {};
  if (dladdr(marker, &info) == 0 || info.dli_fname == nullptr) return RTLD_DEFAULT;
  void* handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return handle != nullptr ? handle : RTLD_DEFAULT;
}

void* FindDriverLibrary() {
  if (void* marker = dlsym(RTLD_DEFAULT, kMarker)) return HandleOf(marker);
  if (void* loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    if (dlsym(loaded, kMarker) != nullptr) return loaded;
    Refuse("this process has loaded a real CUDA driver; load the emulated libcuda.so.1 instead, or the real NCCL");
  }
  const std::string folder = OwnFolder();
  for (const std::string& file : {folder + "/libcuda.so.1", folder + "/../cuda/libcuda.so.1"}) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    if (dlsym(handle, kMarker) != nullptr) return handle;
    Refuse(file + " is not the emulated CUDA driver");
  }
  Refuse("no emulated libcuda.so.1 is loaded, nor lies in " + folder + " or " + folder + "/../cuda");
}

DriverFunctions Load() {
  void* library = FindDriverLibrary();
  DriverFunctions driver;
  const auto find = [&](const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) Refuse(std::string("the emulated CUDA driver has no ") + name);
    return symbol;
  };
#define COMMPOOL_FIND(name) driver.name = reinterpret_cast<decltype(driver.name)>(find(COMMPOOL_TEXT(name)));
  COMMPOOL_EMULATED_NCCL_DRIVER_FUNCTIONS(COMMPOOL_FIND)
#undef COMMPOOL_FIND
  return driver;
}

int ParseVersion(const std::string& text) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  if (std::sscanf(text.c_str(), "%d.%d.%d", &major, &minor, &patch) < 2) {
    Refuse("the emulator's description says nccl=" + text + ": write it like 2.28.9");
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

int ClaimedVersion() {
  static const int version = ParseVersion(TextSetting("nccl", "2.28.9"));
  return version;
}

int TimeoutMilliseconds() {
  static const int timeout = NumberSetting("nccl_timeout_ms", 60000);
  return timeout;
}

CurrentContext::CurrentContext(CUcontext context) {
  GetDriver().cuCtxGetCurrent(&saved_);
  GetDriver().cuCtxSetCurrent(context);
}

CurrentContext::~CurrentContext() { GetDriver().cuCtxSetCurrent(saved_); }

}  // namespace commpool::internal::emulated_nccl
