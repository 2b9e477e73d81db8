#include "src/pool/shared/address_table.h"

#include <iterator>
#include <utility>

#include "src/engine/messages.h"

namespace commpool::internal {

void AddressTable::Add(CUdeviceptr address, uint64_t bytes, std::shared_ptr<BlockOwner> owner) {
  MutexLock lock(mutex_);
  ranges_.insert_or_assign(address, Range{bytes, std::move(owner)});
}

void AddressTable::Remove(CUdeviceptr address) {
  std::shared_ptr<BlockOwner> owner;  // outlives the lock: it may be the last one, and destroying a pool takes locks
  MutexLock lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return;
  owner = std::move(found->second.owner);
  ranges_.erase(found);
}

Result<std::shared_ptr<BlockOwner>> AddressTable::OwnerOf(CUdeviceptr address) const {
  Result<OwnedRange> range = RangeOf(address);
  if (!range.ok()) return range.status();
  return std::move(range->owner);
}

Result<OwnedRange> AddressTable::RangeOf(CUdeviceptr address) const {
  {
    MutexLock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after != ranges_.begin()) {
      const auto& [start, range] = *std::prev(after);
      if (address - start < range.bytes) return OwnedRange{start, range.bytes, range.owner};
    }
  }
  return Status(StatusCode::kNotFound, engine::Hexadecimal(address) +
                                           " lies in no pool: it is not commpool's memory, or its pool has "
                                           "given it back");
}

}  // namespace commpool::internal
