#include "src/adapters/audit/management_library.h"

#include <dlfcn.h>

#include "src/adapters/preload/symbols.h"

namespace commpool::audit {

namespace {

// As nvml.h declares them; no package that the build uses has that header.
using Device = struct Device_st*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kSuccess = 0;

struct Library {
  int (*initialise)() = nullptr;
  int (*find)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;

  static Library Open() {
    Library library;
    void* const handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (handle == nullptr) return library;
    const auto look = [handle](const char* name) { return preload::SystemDlsym(handle, name); };
    library.initialise = reinterpret_cast<decltype(initialise)>(look("nvmlInit_v2"));
    library.find = reinterpret_cast<decltype(find)>(look("nvmlDeviceGetHandleByPciBusId_v2"));
    library.memory = reinterpret_cast<decltype(memory)>(look("nvmlDeviceGetMemoryInfo"));
    const bool whole = library.initialise != nullptr && library.find != nullptr && library.memory != nullptr;
    return whole && library.initialise() == kSuccess ? library : Library();
  }
};

}  // namespace

std::optional<int64_t> FreeBytesByBus(const std::string& address) {
  static const Library library = Library::Open();
  Device device = nullptr;
  Memory memory = {};
  if (library.find == nullptr || library.find(address.c_str(), &device) != kSuccess) return std::nullopt;
  if (library.memory(device, &memory) != kSuccess) return std::nullopt;
  return static_cast<int64_t>(memory.free);
}

}  // namespace commpool::audit
