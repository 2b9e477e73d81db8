#include "src/pool/shared/pool_table.h"

#include <string>
#include <utility>

namespace commpool::internal {

namespace {

Status NoSuchPool(PoolHandle handle) {
  return Status(StatusCode::kNotFound,
                "pool " + std::to_string(handle) + " does not exist: it was destroyed, or never made");
}

}  // namespace

PoolHandle PoolTable::NextHandle() {
  MutexLock lock(mutex_);
  return next_++;
}

void PoolTable::Add(PoolHandle handle, std::shared_ptr<Pool> pool) {
  MutexLock lock(mutex_);
  pools_.emplace(handle, std::move(pool));
}

Result<std::shared_ptr<Pool>> PoolTable::Find(PoolHandle handle) const {
  MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return NoSuchPool(handle);
  return found->second;
}

Result<std::shared_ptr<Pool>> PoolTable::Remove(PoolHandle handle) {
  MutexLock lock(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return NoSuchPool(handle);
  std::erase_if(removed_, [](const std::weak_ptr<Pool>& pool) { return pool.expired(); });
  removed_.push_back(found->second);
  std::shared_ptr<Pool> pool = std::move(found->second);
  pools_.erase(found);
  return pool;
}

size_t PoolTable::removed() const {
  MutexLock lock(mutex_);
  return removed_.size();
}

ReservedVector<std::shared_ptr<Pool>> PoolTable::All() const {
  ReservedVector<std::shared_ptr<Pool>> all;
  MutexLock lock(mutex_);
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  for (const std::weak_ptr<Pool>& removed : removed_) {
    if (std::shared_ptr<Pool> pool = removed.lock()) all.push_back(std::move(pool));
  }
  return all;
}

}  // namespace commpool::internal
