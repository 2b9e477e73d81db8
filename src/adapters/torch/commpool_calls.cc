#include "src/adapters/torch/commpool_calls.h"

#include <dlfcn.h>

namespace commpool::torch_adapter {
namespace {

std::string Text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

std::string OpenCommpool(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("cannot open libcommpool: ") + dlerror();
  const auto version = reinterpret_cast<decltype(&::commpool_version)>(dlsym(library, "commpool_version"));
  if (version == nullptr) return std::string(path) + " is no commpool library: it does not tell its version";
  if (version() / 100 != COMMPOOL_VERSION / 100)
    return std::string(path) + " is commpool " + Text(version()) + ", and this router is of " + Text(COMMPOOL_VERSION) +
           ", which needs the same minor version";
  CommpoolCalls calls;
#define COMMPOOL_TORCH_FIND(name)                                                         \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(library, "commpool_" #name)); \
  if (calls.name == nullptr) return std::string(path) + " has no commpool_" #name ": it is too old";
  COMMPOOL_TORCH_CALLS(COMMPOOL_TORCH_FIND)
#undef COMMPOOL_TORCH_FIND
  const auto* open_scopes = static_cast<const std::atomic<uint64_t>* const*>(dlsym(library, "commpool_open_scopes"));
  if (open_scopes == nullptr) return std::string(path) + " has no commpool_open_scopes: it is too old";
  calls.open_scopes = *open_scopes;
  commpool_calls = calls;
  return "";
}

}  // namespace commpool::torch_adapter
