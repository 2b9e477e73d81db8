// Scopes over pools of pinned memory. They are of the whole process, because helper threads pin: DataLoader's own
// thread, and those that offload.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "src/torch/scopes.h"

namespace commpool::torch_adapter {

// Owns the list of those pools and of their open scopes. The host allocator asks it for each pinned tensor.
class HostScopes : public SharedScopes {
 public:
  // Of all scopes only those that the host allocator serves have handles of this kind.
  static bool IsHandle(uint64_t handle) { return handle % kHandles == kKind; }

  void Know(commpool_pool pool) {
    const std::lock_guard lock(mutex_);
    if (!Knows(pool)) pools_.push_back(pool);
  }
  std::vector<commpool_pool> KnownPools() {
    const std::lock_guard lock(mutex_);
    return pools_;
  }
  void Forget(commpool_pool pool) {
    const std::lock_guard lock(mutex_);
    std::erase(pools_, pool);
  }

  // Returns the scope's handle; nothing if the pool is not known.
  std::optional<uint64_t> Begin(const ScopePlan& plan) {
    const std::lock_guard lock(mutex_);
    if (!Knows(plan.pool)) return std::nullopt;
    SharedScopes::Begin(last_handle_ += kHandles, plan, /*symmetric=*/false, std::nullopt);
    return last_handle_;
  }

 private:
  // The router's other handles are odd, or addresses.
  static constexpr uint64_t kHandles = 4, kKind = 2;

  // The caller holds the mutex.
  bool Knows(commpool_pool pool) const { return std::find(pools_.begin(), pools_.end(), pool) != pools_.end(); }

  std::mutex mutex_;
  std::vector<commpool_pool> pools_;
  uint64_t last_handle_ = kKind;
};

inline constinit Forever<HostScopes> host_scopes;
inline HostScopes& PinnedScopes() { return host_scopes.object; }

}  // namespace commpool::torch_adapter
