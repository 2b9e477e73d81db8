// Scopes over pools of pinned memory. They are of the whole process, because helper threads pin: DataLoader's own
// thread, and those that offload.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "src/library/pool/scopes/plan.h"
#include "src/torch/native.h"

namespace commpool::torch_adapter {

// Owns the list of those pools and of their open scopes. The host allocator asks it for each pinned tensor.
class HostScopes {
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
  std::optional<uint64_t> Begin(const internal::ScopePlan& plan) {
    const std::lock_guard lock(mutex_);
    if (!Knows(plan.pool)) return std::nullopt;
    open_.push_back({last_handle_ + kHandles, plan});
    open_count_.fetch_add(1, std::memory_order_relaxed);
    return last_handle_ += kHandles;
  }
  // Returns false if the scope is not open. It may end on any thread, before or after others.
  bool End(uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (std::erase_if(open_, [handle](const Open& scope) { return scope.handle == handle; }) == 0) return false;
    open_count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  struct Open {
    uint64_t handle = 0;
    internal::ScopePlan plan;
  };
  bool None() const { return open_count_.load(std::memory_order_relaxed) == 0; }
  // Returns the scope that catches so many bytes and began last of those that began before `outside_of`.
  std::optional<Open> Innermost(uint64_t bytes, uint64_t outside_of) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& scope) {
      return scope.handle < outside_of && scope.plan.sizes.Has(bytes);
    });
    return found == open_.rend() ? std::nullopt : std::optional(*found);
  }

 private:
  // The router's other handles are odd, or addresses.
  static constexpr uint64_t kHandles = 4, kKind = 2;

  // The caller holds the mutex.
  bool Knows(commpool_pool pool) const { return std::find(pools_.begin(), pools_.end(), pool) != pools_.end(); }

  std::mutex mutex_;
  std::vector<commpool_pool> pools_;
  std::vector<Open> open_;  // in the order in which they began
  uint64_t last_handle_ = kKind;
  std::atomic<int> open_count_{0};
};

inline constinit Forever<HostScopes> host_scopes;
inline HostScopes& PinnedScopes() { return host_scopes.object; }

}  // namespace commpool::torch_adapter
