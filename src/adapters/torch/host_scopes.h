// Scopes over pools of pinned memory. They are of the whole process, because helper threads pin: DataLoader's own
// thread, and those that offload.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_HOST_SCOPES_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_HOST_SCOPES_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "src/adapters/torch/native.h"
#include "src/pool/scopes/plan.h"

namespace commpool::torch_adapter {

// A pool of pinned memory. PyTorch's pinned tensors are of no stream, so their blocks are of one on which nothing ever
// runs: they wait for the streams that PyTorch records, and for no other work.
struct HostPool {
  commpool_pool pool = 0;
  int device = 0;
  cudaStream_t idle_stream = nullptr;
};

// Owns the list of those pools and of their open scopes. The host allocator asks it for each pinned tensor.
class HostScopes {
 public:
  // Of all scopes only those that the host allocator serves have handles of this kind.
  static bool IsHandle(uint64_t handle) { return handle % kHandles == kKind; }

  void Know(const HostPool& pool) {
    const std::lock_guard lock(mutex_);
    if (Find(pool.pool) == nullptr) pools_.push_back(pool);
    if (StreamOf(pool.device) == nullptr) idle_streams_.emplace_back(pool.device, pool.idle_stream);
  }
  std::vector<commpool_pool> KnownPools() {
    const std::lock_guard lock(mutex_);
    std::vector<commpool_pool> known;
    for (const HostPool& pool : pools_) known.push_back(pool.pool);
    return known;
  }
  void Forget(commpool_pool pool) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pools_, [pool](const HostPool& known) { return known.pool == pool; });
  }
  // Returns the stream of the device's pools; null if it has had none.
  cudaStream_t IdleStreamOf(int device) {
    const std::lock_guard lock(mutex_);
    return StreamOf(device);
  }

  // Returns the scope's handle; nothing if the pool is not known.
  std::optional<uint64_t> Begin(const internal::ScopePlan& plan) {
    const std::lock_guard lock(mutex_);
    const HostPool* const known = Find(plan.pool);
    if (known == nullptr) return std::nullopt;
    open_.push_back({last_handle_ + kHandles, plan, known->idle_stream});
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
    cudaStream_t idle_stream = nullptr;
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

  // The caller of both holds the mutex.
  const HostPool* Find(commpool_pool pool) const {
    const auto found =
        std::find_if(pools_.begin(), pools_.end(), [pool](const HostPool& known) { return known.pool == pool; });
    return found == pools_.end() ? nullptr : &*found;
  }

  cudaStream_t StreamOf(int device) const {
    for (const auto& [of_device, stream] : idle_streams_)
      if (of_device == device) return stream;
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<HostPool> pools_;
  std::vector<std::pair<int, cudaStream_t>> idle_streams_;  // with their devices; kept when pools are gone
  std::vector<Open> open_;                                  // in the order in which they began
  uint64_t last_handle_ = kKind;
  std::atomic<int> open_count_{0};
};

inline constinit Forever<HostScopes> host_scopes;
inline HostScopes& PinnedScopes() { return host_scopes.object; }

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_HOST_SCOPES_H_
