// AddressTable: finds the owner of the block at an address. The runtime owns it; pools add their segments. Any thread.
//
// A segment's entry keeps its owner alive, because blocks may outlive a pool's handle.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/shared/block_owner.h"
#include "src/library/pool/shared/taken.h"

namespace commpool::internal {

// What the table knows of a segment.
struct OwnedRange {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<BlockOwner> owner;
};

// RuntimeParts owns one. SegmentMaker and the growers add entries; frees, record_stream and look-ups ask. Lock: its
// own, of rank `pool table`. It owns no memory. An entry holds its owner, so a pool lives as long as it has a segment,
// whatever becomes of its handle.
class AddressTable {
 public:
  // Does nothing where no entry begins at the address. May destroy the owner, where this was its last reference: so
  // call it without a lock.
  void Remove(CUdeviceptr address);
  using Entry = Taken<AddressTable, CUdeviceptr, &AddressTable::Remove>;

  // The destructor of the entry removes it from the table, unless it is kept. kInvalidArgument, with the owner's name,
  // where part of the range has an owner already. Call it before the engine knows the memory: a block of it may be
  // freed as soon as it serves.
  Result<Entry> Add(CUdeviceptr address, uint64_t bytes, std::shared_ptr<BlockOwner> owner);

  // The segment that holds the address, and its owner; kNotFound for foreign pointers. The slow way of a free: most
  // blocks have a word that names their pool (Runtime::Free).
  Result<std::shared_ptr<BlockOwner>> OwnerOf(CUdeviceptr address) const;
  Result<OwnedRange> RangeOf(CUdeviceptr address) const;
  // The bytes of all segments together. Addresses, not memory: an expandable pool's territory counts whole.
  uint64_t bytes() const;

 private:
  mutable Mutex mutex_{LockRank::kPoolTable};
  // By first address; ranges never overlap.
  std::map<CUdeviceptr, OwnedRange> ranges_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t bytes_ COMMPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace commpool::internal
