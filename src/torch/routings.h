// Which of PyTorch's private pools serve whom now (torch.cuda.use_mem_pool, graphs), and which of them are ours. Only
// the router knows a torch.cuda.MemPool that is bound to one of our pools: PyTorch's native allocator never hears of
// it.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "src/torch/known_pools.h"
#include "src/torch/scopes.h"

namespace commpool::torch_adapter {

using StreamFilter = std::function<bool(cudaStream_t)>;

struct Routing {
  uint64_t number = 0;     // scopes and routings count together; 0: none
  commpool_pool pool = 0;  // 0: a pool of PyTorch's own
};

// Owns the table of our MemPools and of the open routings. The router asks it for each allocation that something may
// catch.
class Routings {
 public:
  // Makes `pool` the next private pool that this thread makes; 0 takes that back.
  static void BindNext(commpool_pool pool) { next_bound_ = pool; }
  // Binds `id`, or counts one more user of it. Returns false if the id is PyTorch's own.
  bool CreateOrIncrease(int device, const MempoolId_t& id) {
    const commpool_pool next = std::exchange(next_bound_, 0);
    const std::lock_guard lock(mutex_);
    if (Bound* bound = Find(id)) {
      ++bound->users;
      return true;
    }
    if (next == 0) return false;
    const std::optional<KnownPool> known = Pools().Of(next);
    bound_.push_back({id, next, known ? known->device : device, 1});
    Pools().Change(next, [&id](KnownPool& known) { known.id = id; });
    return true;
  }
  // Returns the number of users of our pool; nothing if the id is PyTorch's own.
  std::optional<int> Users(const MempoolId_t& id) {
    const std::lock_guard lock(mutex_);
    const Bound* bound = Find(id);
    return bound == nullptr ? std::nullopt : std::optional(bound->users);
  }
  bool IsOurs(const MempoolId_t& id) { return Users(id).has_value(); }
  // Says whether a MemPool of ours is alive.
  bool AnyOfOurs() {
    const std::lock_guard lock(mutex_);
    return !bound_.empty();
  }
  // Returns false if the id is PyTorch's own.
  bool Release(const MempoolId_t& id) {
    const std::lock_guard lock(mutex_);
    Bound* bound = Find(id);
    if (bound == nullptr) return false;
    if (--bound->users == 0) bound_.erase(bound_.begin() + (bound - bound_.data()));
    return true;
  }

  // The router calls it for every id. Returns true if the id is ours: then PyTorch's allocator must not hear of it.
  bool Begin(int device, const MempoolId_t& id, StreamFilter filter) {
    const std::lock_guard lock(mutex_);
    Bound* bound = Find(id);
    TORCH_CHECK(
        bound == nullptr || std::none_of(open_.begin(), open_.end(), [&](const Open& open) { return open.id == id; }),
        "commpool: allocations go to this MemPool already: use_mem_pool cannot be entered twice with one pool");
    if (bound != nullptr) ++bound->users;
    const commpool_pool pool = bound == nullptr ? 0 : bound->pool;
    const int catches = bound == nullptr ? device : bound->device;
    open_.push_back({device, catches, id, std::move(filter), {NextCatcherNumber(), pool}});
    open_count_.fetch_add(1, std::memory_order_relaxed);
    if (pool != 0) Hot().catchers.fetch_add(1, std::memory_order_relaxed);
    return pool != 0;
  }
  bool End(int device, const MempoolId_t& id) {
    const std::lock_guard lock(mutex_);
    const auto open = std::find_if(open_.rbegin(), open_.rend(),
                                   [&](const Open& entry) { return entry.device == device && entry.id == id; });
    if (open == open_.rend()) return Find(id) != nullptr;
    const bool ours = open->routing.pool != 0;
    open_.erase(std::next(open).base());
    open_count_.fetch_sub(1, std::memory_order_relaxed);
    if (ours) Hot().catchers.fetch_sub(1, std::memory_order_relaxed);
    return ours;
  }

  // Returns the newest routing whose filter takes the calling thread and stream.
  Routing Innermost(int device, cudaStream_t stream) { return None() ? Routing{} : InnermostOpen(device, stream); }
  bool None() const { return open_count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Bound {
    MempoolId_t id;
    commpool_pool pool = 0;
    int device = 0;  // the pool's
    int users = 0;
  };
  struct Open {
    int device = 0;   // that was current: PyTorch ends the routing by it
    int catches = 0;  // tensors of this device: a pool of ours has no memory for others
    MempoolId_t id;
    StreamFilter filter;
    Routing routing;
  };
  Routing InnermostOpen(int device, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    for (auto open = open_.rbegin(); open != open_.rend(); ++open)
      if (open->catches == device && open->filter(stream)) return open->routing;
    return {};
  }
  // The caller holds the mutex.
  Bound* Find(const MempoolId_t& id) {
    const auto found = std::find_if(bound_.begin(), bound_.end(), [&](const Bound& bound) { return bound.id == id; });
    return found == bound_.end() ? nullptr : &*found;
  }

  static inline thread_local commpool_pool next_bound_ = 0;
  std::mutex mutex_;
  std::vector<Bound> bound_;
  std::vector<Open> open_;
  std::atomic<int> open_count_{0};
};

inline constinit Forever<Routings> torch_routings;
inline Routings& TorchRoutings() { return torch_routings.object; }

}  // namespace commpool::torch_adapter
