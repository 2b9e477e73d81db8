#include "src/pool/pool_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace commpool::internal {

namespace {

Status NoSuchPool(PoolHandle handle) {
  return Status(StatusCode::kNotFound,
                "pool " + std::to_string(handle) + " does not exist: it was destroyed, or never made");
}

}  // namespace

PoolHandle PoolTable::Add(std::shared_ptr<Pool> pool) {
  MutexLock lock(mutex_);
  const PoolHandle handle = next_++;
  pool->SetHandle(handle);
  pools_.emplace(handle, std::move(pool));
  return handle;
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
  std::shared_ptr<Pool> pool = std::move(found->second);
  pools_.erase(found);
  return pool;
}

void PoolTable::AddRange(CUdeviceptr address, uint64_t bytes, std::shared_ptr<Pool> owner) {
  MutexLock lock(mutex_);
  ranges_.insert_or_assign(address, Range{bytes, std::move(owner)});
}

void PoolTable::RemoveRange(CUdeviceptr address) {
  std::shared_ptr<Pool> owner;  // outlives the lock: it may be the last one, and destroying a pool takes locks
  MutexLock lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return;
  owner = std::move(found->second.owner);
  ranges_.erase(found);
}

Result<std::shared_ptr<Pool>> PoolTable::Owner(CUdeviceptr address) const {
  Result<OwnedRange> range = RangeOf(address);
  if (!range.ok()) return range.status();
  return std::move(range->owner);
}

Result<OwnedRange> PoolTable::RangeOf(CUdeviceptr address) const {
  {
    MutexLock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after != ranges_.begin()) {
      const auto& [start, range] = *std::prev(after);
      if (address - start < range.bytes) return OwnedRange{start, range.bytes, range.owner};
    }
  }
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
  return Status(StatusCode::kNotFound, std::string(text) +
                                           " lies in no pool: it is not commpool's memory, or its pool has "
                                           "given it back");
}

std::vector<std::shared_ptr<Pool>> PoolTable::All() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Pool>> all;
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  for (const auto& [address, range] : ranges_) {
    if (std::find(all.begin(), all.end(), range.owner) == all.end()) all.push_back(range.owner);
  }
  return all;
}

}  // namespace commpool::internal
