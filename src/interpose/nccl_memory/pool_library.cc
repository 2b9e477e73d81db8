#include "src/interpose/nccl_memory/pool_library.h"

#include <dlfcn.h>

#include <atomic>

namespace commpool::run {

namespace {

constexpr const char* kFile = "libcommpool.so.0";

// The folder of this library, with a slash.
std::string OwnFolder() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &own) == 0 || own.dli_fname == nullptr) return "";
  const std::string file = own.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

void* Open(std::string& why) {
  if (void* const loaded = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  // An install tree has it one folder up; then where Bazel built it.
  for (const char* folder : {"../", "../../library/c_api/"}) {
    if (void* const library = dlopen((OwnFolder() + folder + kFile).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  return nullptr;
}

PoolLibrary Resolve() {
  PoolLibrary library;
  void* const handle = Open(library.why_missing);
  if (handle == nullptr) return library;
  library.why_missing.clear();
  const auto version = reinterpret_cast<decltype(&commpool_version)>(dlsym(handle, "commpool_version"));
  if (version == nullptr || version() / 100 != COMMPOOL_VERSION / 100) {
    library.why_missing = kFile;
    library.why_missing += " that the process has loaded is of another version";
    return library;
  }
#define COMMPOOL_RESOLVE(member) \
  library.member = reinterpret_cast<decltype(library.member)>(dlsym(handle, "commpool_" #member))
  COMMPOOL_RESOLVE(pools_create);
  COMMPOOL_RESOLVE(pool_destroy);
  COMMPOOL_RESOLVE(pool_allocate);
  COMMPOOL_RESOLVE(free);
  COMMPOOL_RESOLVE(block_of);
  COMMPOOL_RESOLVE(pool_statistics);
  COMMPOOL_RESOLVE(release_idle);
  COMMPOOL_RESOLVE(last_error);
#undef COMMPOOL_RESOLVE
  return library;
}

}  // namespace

const PoolLibrary& PoolLibrary::Get() {
  static const auto* const library = new PoolLibrary(Resolve());
  return *library;
}

const PoolLibrary* PoolLibrary::Loaded() {
  // Once found it stays, because of the reference that dlopen took. So the loader is asked no more.
  static std::atomic<const PoolLibrary*> loaded{nullptr};
  if (const PoolLibrary* const known = loaded.load()) return known;
  if (dlopen(kFile, RTLD_NOW | RTLD_NOLOAD) == nullptr || Get().release_idle == nullptr) return nullptr;
  loaded = &Get();
  return &Get();
}

}  // namespace commpool::run
