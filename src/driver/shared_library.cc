#include "src/driver/shared_library.h"

#include <dlfcn.h>
#include <link.h>

namespace commpool::internal {

namespace {

// The file behind a handle; the system may have searched for `name`.
std::string FileOf(void* handle, const std::string& name) {
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name[0] == '\0') return name;
  return map->l_name;
}

}  // namespace

Result<SharedLibrary> SharedLibrary::Open(const std::string& file, Symbols symbols) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | (symbols == Symbols::kShared ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) {
    const char* error = dlerror();
    return Status(StatusCode::kNotFound, error == nullptr ? file + " cannot be opened" : std::string(error));
  }
  return SharedLibrary(handle, FileOf(handle, file));
}

Result<SharedLibrary> SharedLibrary::FindLoaded(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return Status(StatusCode::kNotFound, name + " is not loaded");
  return SharedLibrary(handle, FileOf(handle, name));
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace commpool::internal
