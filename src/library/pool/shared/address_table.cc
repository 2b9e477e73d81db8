// AddressTable: a map by first address. Each question is one search under the lock.
#include <iterator>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/engine/types.h"
#include "src/library/pool/shared/tables.h"

namespace commpool::internal {

// A range that overlaps another one means that a program's own functions, or the driver, gave out one address twice.
// The message is made after the lock: it allocates.
Result<AddressTable::Entry> AddressTable::Add(CUdeviceptr address, uint64_t bytes, std::shared_ptr<BlockOwner> owner) {
  std::string there;
  {
    MutexLock lock(mutex_);
    const auto after = ranges_.lower_bound(address);
    const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
    if (after != ranges_.end() && after->first - address < bytes) {
      there = after->second.owner->name();
    } else if (before != ranges_.end() && address - before->first < before->second.bytes) {
      there = before->second.owner->name();
    } else {
      ranges_.emplace(address, OwnedRange{address, bytes, std::move(owner)});
      bytes_ += bytes;
      return Entry(*this, address);
    }
  }
  return InvalidArgument(FormatBytes(bytes), " at ", engine::Hexadecimal(address), " lie in memory of pool ", there,
                         " already");
}

// SegmentMaker calls it before the memory goes to the driver, which may give the address to another pool at once.
void AddressTable::Remove(CUdeviceptr address) {
  // Released after the lock: it may be the last reference, and a pool's destructor takes locks.
  std::shared_ptr<BlockOwner> owner;
  MutexLock lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return;
  owner = std::move(found->second.owner);
  bytes_ -= found->second.bytes;
  ranges_.erase(found);
}

uint64_t AddressTable::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

Result<std::shared_ptr<BlockOwner>> AddressTable::OwnerOf(CUdeviceptr address) const {
  OwnedRange range = COMMPOOL_TRY(RangeOf(address));
  return std::move(range.owner);
}

// A copy, whose owner stays alive while the caller uses it.
Result<OwnedRange> AddressTable::RangeOf(CUdeviceptr address) const {
  {
    MutexLock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after != ranges_.begin()) {
      const OwnedRange& range = std::prev(after)->second;
      // Ranges do not overlap, so only the last that begins at or before the address can hold it.
      if (address - range.address < range.bytes) return range;
    }
  }
  return NotFound(engine::Hexadecimal(address),
                  " lies in no pool: it is not commpool's memory, or its pool has "
                  "given it back");
}

}  // namespace commpool::internal
