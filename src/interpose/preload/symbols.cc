#include "src/interpose/preload/symbols.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <vector>

// Where this library begins and ends: the linker's names.
extern "C" {
extern const char __ehdr_start __attribute__((visibility("hidden")));
extern const char _end __attribute__((visibility("hidden")));
}

namespace commpool::preload {

namespace {

#if defined(__x86_64__)
constexpr const char* kFirstVersion = "GLIBC_2.2.5";
#else
constexpr const char* kFirstVersion = "GLIBC_2.17";
#endif

int AddFile(dl_phdr_info* info, size_t, void* files) {
  const char* const name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  static_cast<std::vector<std::string>*>(files)->push_back(name);
  return 0;
}

}  // namespace

void* DlsymOfSystem() {
  // dlvsym has the first version still, wherever newer systems have moved the function.
  static void* const system = dlvsym(RTLD_NEXT, "dlsym", kFirstVersion);
  return system;
}

void* SystemDlsym(void* handle, const char* name) {
  return reinterpret_cast<void* (*)(void*, const char*)>(DlsymOfSystem())(handle, name);
}

bool IsOurs(const void* address) {
  const auto* const place = static_cast<const char*>(address);
  return place >= &__ehdr_start && place < &_end;
}

void* FindDefinition(const char* name) {
  void* const next = SystemDlsym(RTLD_NEXT, name);
  if (next != nullptr && !IsOurs(next)) return next;
  // A library that was loaded for itself alone, as Python loads its modules and what they need.
  std::vector<std::string> files;
  dl_iterate_phdr(&AddFile, &files);
  for (const std::string& file : files) {
    void* const handle = dlopen(file.empty() ? nullptr : file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const found = SystemDlsym(handle, name);
    dlclose(handle);  // it was loaded before, and stays
    if (found != nullptr && !IsOurs(found)) return found;
  }
  return nullptr;
}

}  // namespace commpool::preload
