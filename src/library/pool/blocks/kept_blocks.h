// The copies on the host that a pool keeps of its blocks while it sleeps. With Retain they stay once the pool is awake.
//
// One thread at a time, under the pool's growth lock; any thread may call bytes() and Retain(). Calls the driver.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_KEPT_BLOCKS_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_KEPT_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/engine/types.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/blocks/host_copies.h"
#include "src/library/pool/options.h"
#include "src/library/pool/shared/memory_account.h"

namespace commpool::internal {

// SleepingMemory owns one. Sleeping calls Keep, and waking restores, segment by segment. It owns the copies, and the
// account of their memory, which is the host's and so counts in no device's limit.
class KeptBlocks {
 public:
  explicit KeptBlocks(const PoolBasis& basis) : basis_(basis), transfer_(basis) {}

  // Copies the live blocks that `wanted` names. A block that has a copy already keeps that copy's place. Where it fails
  // nothing is kept. REQUIRES: the device is quiet, and no thread's cache holds a block.
  Status Keep(BlockStore& blocks, const KeptCopies& wanted);

  // Starts the copies of a range's kept blocks. Back to the device the copies on the host stay. It may copy a
  // block that is freed meanwhile, which does no harm: it is free memory. REQUIRES: the range is mapped, and the
  // device's context is current.
  Status Start(engine::SegmentRange range, HostCopies::Direction direction);
  // Gives up the copies of blocks that were freed in sleep: nobody misses them where they are damaged.
  void DropFreed(const BlockStore& blocks);
  // Waits for all copies that were started. Returns `started` where that is a failure, else the first failure of a
  // copy. Call it before the memory is used or released.
  Status AwaitRestoring(Status started) { return transfer_.Await(std::move(started)); }

  // Sets whether copies stay once the pool is awake. kInvalidArgument for copies in files. Holds for sleeps to come
  // too.
  Status Retain(bool retain);
  // Call it when the pool is awake, before it serves. Copies of live blocks stay if the program wants that (Retain);
  // all others go.
  void LetGo(BlockStore& blocks);

  // Where the copy of a range can be read. kNotFound where there is none.
  Result<const std::byte*> Find(const BlockStore& blocks, const engine::SegmentRange& range, bool asleep);

  // Gives up all copies and their memory.
  void Drop();
  // Call it when the runtime ends: the memory goes with the process.
  void Abandon();
  // The bytes that the copies take, on the host or in files. Several copies share one piece of memory: all of it counts
  // until its last copy goes.
  uint64_t bytes() const { return account_.taken(); }

 private:
  // The copy of one block.
  struct Copy {
    engine::SegmentRange device;
    uint64_t segment = 0;
    // Shared by neighbours in one piece of memory, which goes with its last copy.
    std::shared_ptr<KeptMemory> memory;  // null: it has no place yet
    uint64_t offset = 0;
    // Then one copy serves several sleeps.
    bool constant = false;  // the program has promised that the block does not change
    bool made = false;      // the copy has the block's contents, and the block has not changed since

    engine::Address end() const { return device.address + device.bytes; }
  };
  using Copies = std::vector<Copy>;  // by address

  // The first copy that ends behind an address. It may begin before the address.
  Copies::iterator From(engine::Address address);
  // The copies that the program wants, with the places and bytes that are there already.
  Copies Wanted(const BlockStore& blocks, const KeptCopies& wanted);
  // Makes memory for the copies that have none. Where it fails the caller drops all copies.
  Status MakePlaces(const KeptCopies& wanted, Copies& copies);
  // Afterwards every copy is made, and every file sealed.
  Status CopyAll();

  const PoolBasis& basis_;
  HostCopies transfer_;
  MemoryAccount account_;  // of the memory of all copies
  Copies copies_;
  // Where the present copies lie; another place means new copies.
  KeptIn in_ = KeptIn::kPinned;
  // Any thread sets it, and LetGo reads it at the next wake.
  std::atomic<bool> retain_{false};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BLOCKS_KEPT_BLOCKS_H_
