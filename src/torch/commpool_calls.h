// The functions of libcommpool, found at run time. So the router links only PyTorch's c10, and uses whichever
// libcommpool the process has open already.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "commpool/commpool.h"
#include "commpool/share.h"

#define COMMPOOL_TORCH_CALLS(CALL) \
  CALL(last_error)                 \
  CALL(pool_allocate)              \
  CALL(allocate_in_scope)          \
  CALL(free)                       \
  CALL(promise_stream)             \
  CALL(record_stream)              \
  CALL(share)                      \
  CALL(block_of)                   \
  CALL(pool_blocks)                \
  CALL(pool_statistics)            \
  CALL(pools_trim)                 \
  CALL(pool_set_access)            \
  CALL(capture_begin)              \
  CALL(capture_end)                \
  CALL(set_device_bound)           \
  CALL(scope_begin)                \
  CALL(scope_end)                  \
  CALL(add_holder)                 \
  CALL(configuration)

namespace commpool::torch_adapter {

struct CommpoolCalls {
#define COMMPOOL_TORCH_MEMBER(name) decltype(&::commpool_##name) name = nullptr;
  COMMPOOL_TORCH_CALLS(COMMPOOL_TORCH_MEMBER)
#undef COMMPOOL_TORCH_MEMBER
  const std::atomic<uint64_t>* open_scopes = nullptr;  // not 0 while a scope of the C ABI is open
};

// The table of the process. Its members are null until OpenCommpool succeeds.
inline constinit CommpoolCalls commpool_calls;
inline const CommpoolCalls& Commpool() { return commpool_calls; }

// "0.5.0", from COMMPOOL_VERSION or what commpool_version returns.
inline std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Fills the table from the library at `path`. That library must have the minor version that the router was built with.
// Returns the reason if it cannot, else an empty text.
inline std::string OpenCommpool(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("cannot open libcommpool: ") + dlerror();
  const auto version = reinterpret_cast<decltype(&::commpool_version)>(dlsym(library, "commpool_version"));
  if (version == nullptr) return std::string(path) + " is no commpool library: it does not tell its version";
  if (version() / 100 != COMMPOOL_VERSION / 100)
    return std::string(path) + " is commpool " + VersionText(version()) + ", and this router is of " +
           VersionText(COMMPOOL_VERSION) + ", which needs the same minor version";
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
