#include "src/emulator/driver_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace commpool::internal {

namespace {

constexpr const char* kMarker = "commpoolEmulatorLaunch";

// Returns the folder of the library that contains this code.
std::string OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

// Returns a handle to look up every driver symbol: that of the library which contains the marker.
void* HandleOf(void* marker) {
  Dl_info info = {};
  if (dladdr(marker, &info) == 0 || info.dli_fname == nullptr) return RTLD_DEFAULT;
  void* handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return handle != nullptr ? handle : RTLD_DEFAULT;
}

}  // namespace

void RefuseToRun(const char* library, const std::string& reason) {
  std::fprintf(stderr, "commpool: the emulated %s cannot run: %s\n", library, reason.c_str());
  std::abort();
}

void* FindDriverLibrary(const char* library) {
  if (void* marker = dlsym(RTLD_DEFAULT, kMarker)) return HandleOf(marker);
  if (void* loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    if (dlsym(loaded, kMarker) != nullptr) return loaded;
    RefuseToRun(library, std::string("this process has loaded a real CUDA driver; load the emulated libcuda.so.1 ") +
                             "instead, or the real " + library);
  }
  const std::string folder = OwnFolder();
  for (const std::string& file : {folder + "/libcuda.so.1", folder + "/../cuda/libcuda.so.1"}) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    if (dlsym(handle, kMarker) != nullptr) return handle;
    RefuseToRun(library, file + " is not the emulated CUDA driver");
  }
  RefuseToRun(library, "no emulated libcuda.so.1 is loaded, nor lies in " + folder + " or " + folder + "/../cuda");
}

void* FindDriverSymbol(const char* library, void* handle, const char* name) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) RefuseToRun(library, std::string("the emulated CUDA driver has no ") + name);
  return symbol;
}

}  // namespace commpool::internal
