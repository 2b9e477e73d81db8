#include "src/adapters/torch/routings.h"

#include <algorithm>
#include <utility>

#include "src/adapters/torch/scopes.h"

namespace commpool::torch_adapter {

Routings::Bound* Routings::Find(const MempoolId_t& id) {
  const auto found = std::find_if(bound_.begin(), bound_.end(), [&](const Bound& bound) { return bound.id == id; });
  return found == bound_.end() ? nullptr : &*found;
}

bool Routings::CreateOrIncrease(int device, const MempoolId_t& id) {
  const commpool_pool next = std::exchange(next_bound_, 0);
  const std::lock_guard lock(mutex_);
  if (Bound* bound = Find(id)) {
    ++bound->users;
    return true;
  }
  if (next == 0) return false;
  bound_.push_back({id, next, device, 1});
  Pools().Change(next, [&id](KnownPool& known) { known.id = id; });
  return true;
}

std::optional<int> Routings::Users(const MempoolId_t& id) {
  const std::lock_guard lock(mutex_);
  const Bound* bound = Find(id);
  return bound == nullptr ? std::nullopt : std::optional(bound->users);
}

bool Routings::AnyOfOurs() {
  const std::lock_guard lock(mutex_);
  return !bound_.empty();
}

bool Routings::Release(const MempoolId_t& id) {
  const std::lock_guard lock(mutex_);
  Bound* bound = Find(id);
  if (bound == nullptr) return false;
  if (--bound->users == 0) bound_.erase(bound_.begin() + (bound - bound_.data()));
  return true;
}

bool Routings::Begin(int device, const MempoolId_t& id, StreamFilter filter) {
  const std::lock_guard lock(mutex_);
  Bound* bound = Find(id);
  TORCH_CHECK(
      bound == nullptr || std::none_of(open_.begin(), open_.end(), [&](const Open& open) { return open.id == id; }),
      "commpool: allocations go to this MemPool already: use_mem_pool cannot be entered twice with one pool");
  if (bound != nullptr) ++bound->users;
  const commpool_pool pool = bound == nullptr ? 0 : bound->pool;
  open_.push_back({device, id, std::move(filter), {NextCatcherNumber(), pool}});
  open_count_.fetch_add(1, std::memory_order_relaxed);
  if (pool != 0) Hot().catchers.fetch_add(1, std::memory_order_relaxed);
  return pool != 0;
}

bool Routings::End(int device, const MempoolId_t& id) {
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

Routing Routings::InnermostOpen(int device, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  for (auto open = open_.rbegin(); open != open_.rend(); ++open)
    if (open->device == device && open->filter(stream)) return open->routing;
  return {};
}

}  // namespace commpool::torch_adapter
