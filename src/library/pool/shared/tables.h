// How the process finds a pool: by its handle (PoolTable), and the owner of a block by an address (AddressTable).
// The runtime owns one of each. Any thread.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/thread_cache.h"
#include "src/library/pool/shared/taken.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// The owner of blocks. Pools are the only ones: memory imported from another process is known to
// sharing/pool_import.h alone. AddressTable keeps owners alive. Runtime calls them by address, and ThreadCaches gives
// their blocks back, both without a lock. Caches and tables know no more of a pool than this, so they need none of its
// headers.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;

  virtual const std::string& name() const = 0;
  virtual int device() const = 0;
  // Whether its blocks have the same offsets on every rank of a communicator.
  virtual bool symmetric() const = 0;

  // The live block that holds the address; kNotFound where there is none. Takes the owner's lock.
  virtual Result<commpool_block> FindBlock(CUdeviceptr address) const = 0;

  // Caches were asked before: this is the slow way, which takes the owner's lock.
  virtual Status Free(CUdeviceptr address) = 0;
  // Another stream uses the block too, so nobody may reuse the block before that stream's work is done.
  virtual Status RecordStream(CUdeviceptr address, StreamKey stream) = 0;
  // Whether the program promised that all streams it passes outlive their use.
  virtual bool streams_outlive() const = 0;
  // Takes blocks that were freed into threads' caches. Call it without the lock `caches`: the owner takes its own, and
  // may give memory back to the driver.
  virtual void TakeBack(const engine::ReturnedBlocks& returned) = 0;
};

// What the table knows of a segment.
struct OwnedRange {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  std::shared_ptr<BlockOwner> owner;
};

// SegmentMaker and the growers add entries; frees, record_stream and look-ups ask. Lock: its own, of rank `pool table`.
// It owns no memory. An entry holds its owner, so a pool lives as long as it has a segment, whatever becomes of its
// handle: blocks may outlive it.
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

class Pool;

// Never 0, and never reused: a stale one is an error and not a crash.
using PoolHandle = uint64_t;

// Runtime adds and removes pools; every call with a handle finds its pool here. Lock: its own, of rank `pool table`. It
// owns a share of each pool that has a handle, and of no other.
class PoolTable {
 public:
  // A handle for a pool that will be added: the pool must know its handle before another thread finds it.
  PoolHandle NextHandle();
  // From now on every thread finds the pool. `device`: the pool's.
  void Add(PoolHandle handle, std::shared_ptr<Pool> pool, int device = 0);
  // kNotFound for a handle that never existed or has ended.
  Result<std::shared_ptr<Pool>> Find(PoolHandle handle) const;
  // `title`: for messages after the pool's end. The caller ends the pool. Of two threads one gets it.
  Result<std::shared_ptr<Pool>> Remove(PoolHandle handle, std::string title = {});

  // The device of a pool, without a lock. Nothing where the handle has ended, or only Find can tell. A scope that
  // begins needs the device and nothing else of its pool.
  std::optional<int> DeviceAtOnce(PoolHandle handle) const {
    const uint64_t word = devices_[handle % kDevices].load(std::memory_order_acquire);
    return word != 0 && word >> kDeviceBits == handle ? std::make_optional(static_cast<int>(word & kMostDevice))
                                                      : std::nullopt;
  }
  // The title that a removed pool had, such as "pool gradients (vmm, device 1)"; for older ones only the number. For
  // the error of a scope that still names the pool.
  std::string TitleOfRemoved(PoolHandle handle) const;

  // How many removed pools the table still knows, because they still exist.
  size_t removed() const;

  // Every pool with a handle, oldest first, then those without one that live blocks keep alive. A copy: the caller
  // calls the pools without the lock, and they live meanwhile.
  std::vector<std::shared_ptr<Pool>> All() const;

 private:
  // Pools with handles so far apart share a place; the older one is then found by Find alone.
  static constexpr size_t kDevices = 256;
  static constexpr int kDeviceBits = 8;
  static constexpr uint64_t kMostDevice = (1 << kDeviceBits) - 1;
  static constexpr size_t kTitlesKept = 64;

  mutable Mutex mutex_{LockRank::kPoolTable};
  PoolHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<PoolHandle, std::shared_ptr<Pool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  // Handle and device of the newest pool at each place. A word: the handle above, the device in the lowest bits. 0:
  // none.
  std::array<std::atomic<uint64_t>, kDevices> devices_ = {};
  std::deque<std::pair<PoolHandle, std::string>> titles_ COMMPOOL_GUARDED_BY(mutex_);  // of the pools removed last
  // So that what destroyed pools still hold can be released (All). Pools that are gone leave at the next Remove.
  std::vector<std::weak_ptr<Pool>> removed_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
