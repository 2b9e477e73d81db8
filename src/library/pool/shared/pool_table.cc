// PoolTable: the pools by handle, and what is left of those that have none any more.
#include "src/library/base/failure.h"
#include "src/library/pool/shared/tables.h"

namespace commpool::internal {

namespace {

// One message for both: the table does not remember every handle that was.
Status NoSuchPool(PoolHandle handle) {
  return NotFound("pool ", handle, " does not exist: it was destroyed, or never made");
}

}  // namespace

// A handle that its caller does not use is lost, which costs nothing.
PoolHandle PoolTable::NextHandle() {
  MutexLock lock(mutex_);
  return next_++;
}

// Handle and device lie in one word, so that DeviceAtOnce reads both without the lock. It replaces the pool that had
// the place before, which Find still knows.
void PoolTable::Add(PoolHandle handle, std::shared_ptr<Pool> pool, int device) {
  MutexLock lock(mutex_);
  pools_.emplace(handle, std::move(pool));
  // Such a device does not fit into the word: callers then ask Find.
  if (static_cast<uint64_t>(device) > kMostDevice) return;
  devices_[handle % kDevices].store(handle << kDeviceBits | static_cast<uint64_t>(device), std::memory_order_release);
}

// The caller's pointer keeps the pool alive for the call, even if another thread destroys it meanwhile.
Result<std::shared_ptr<Pool>> PoolTable::Find(PoolHandle handle) const {
  MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return NoSuchPool(handle);
  return found->second;
}

// A pool without a handle may still have live blocks, so the table keeps a weak pointer to it. The title is for errors
// of scopes that still name the handle.
Result<std::shared_ptr<Pool>> PoolTable::Remove(PoolHandle handle, std::string title) {
  MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return NoSuchPool(handle);
  std::erase_if(removed_, [](const std::weak_ptr<Pool>& pool) { return pool.expired(); });
  std::shared_ptr<Pool> pool = std::move(found->second);
  removed_.push_back(pool);
  // A bound, because a program may make and destroy pools for ever.
  if (titles_.size() == kTitlesKept) titles_.pop_front();
  titles_.emplace_back(handle, std::move(title));
  pools_.erase(found);
  std::atomic<uint64_t>& device = devices_[handle % kDevices];
  if (device.load(std::memory_order_relaxed) >> kDeviceBits == handle) device.store(0, std::memory_order_release);
  return pool;
}

// A linear search: only an error asks.
std::string PoolTable::TitleOfRemoved(PoolHandle handle) const {
  MutexLock lock(mutex_);
  for (const auto& [removed, title] : titles_) {
    if (removed == handle && !title.empty()) return title;
  }
  return "pool " + std::to_string(handle);
}

size_t PoolTable::removed() const {
  MutexLock lock(mutex_);
  return removed_.size();
}

// Handles rise, so their order is the order of creation.
std::vector<std::shared_ptr<Pool>> PoolTable::All() const {
  std::vector<std::shared_ptr<Pool>> all;
  MutexLock lock(mutex_);
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  for (const std::weak_ptr<Pool>& removed : removed_) {
    if (std::shared_ptr<Pool> pool = removed.lock()) all.push_back(std::move(pool));
  }
  return all;
}

}  // namespace commpool::internal
