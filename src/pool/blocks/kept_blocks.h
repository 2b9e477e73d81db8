// What a pool keeps of its blocks while it sleeps, and after that where the program wants it: copies on the host.
//
// One thread at a time, under the pool's growth lock; bytes() and Retain() are any thread's. Calls the driver.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/engine/types.h"
#include "src/pool/blocks/block_store.h"
#include "src/pool/blocks/host_copies.h"
#include "src/pool/blocks/kept_memory.h"
#include "src/pool/options.h"
#include "src/pool/shared/memory_account.h"

namespace commpool::internal {

// SegmentStore owns one. Sleeping calls Keep, and waking restores, segment by segment.
class KeptBlocks {
 public:
  explicit KeptBlocks(const PoolBasis& basis) : basis_(basis), transfer_(basis) {}

  // Copies the live blocks that are asked for; those that have a copy already get the same place. REQUIRES: the device
  // is quiet, and no thread's cache holds a block. Where it fails nothing is kept.
  Status Keep(BlockStore& blocks, const KeptCopies& wanted);

  // Copies what was in a range back to where it was, and keeps it; does not wait. Blocks that were freed meanwhile are
  // free memory still. REQUIRES: the range is mapped, and the device's context is current.
  Status StartRestoring(const engine::SegmentRange& range);
  // Waits for all copies that were started, and returns the first failure: that of starting, where it is one. Before
  // the memory is used, or goes again.
  Status AwaitRestoring(Status started) { return transfer_.Await(std::move(started)); }

  // Whether copies stay once the pool is awake. kInvalidArgument for those in files.
  Status Retain(bool retain);
  // The pool is awake, and about to serve: copies of live blocks stay where that is asked for, all others go.
  void LetGo(BlockStore& blocks);

  // Where the copy of a range can be read. kNotFound where there is none.
  Result<const std::byte*> Find(const BlockStore& blocks, const engine::SegmentRange& range, bool asleep);

  void Drop();
  // The runtime ends: the memory goes with the process.
  void Abandon();
  // Of the host, or of files: what a copy has as long as another one lies beside it counts too.
  uint64_t bytes() const { return account_.taken(); }

 private:
  // Of a block.
  struct Copy {
    engine::SegmentRange device;
    uint64_t segment = 0;
    std::shared_ptr<KeptMemory> memory;  // null: it has no place yet
    uint64_t offset = 0;
    bool constant = false;  // the program has promised that the block does not change
    bool made = false;      // the block's contents are there, and have not changed since

    engine::Address end() const { return device.address + device.bytes; }
  };
  using Copies = ReservedVector<Copy>;  // by address

  // The first that ends behind an address.
  Copies::iterator From(engine::Address address);
  Copies Wanted(const BlockStore& blocks, const KeptCopies& wanted);
  // Memory for those that have none.
  Status MakePlaces(const KeptCopies& wanted, Copies& copies);
  Status CopyAll();
  Status Start(engine::SegmentRange range, HostCopies::Direction direction);

  const PoolBasis& basis_;
  HostCopies transfer_;
  MemoryAccount account_;  // of all that copies_ has
  Copies copies_;
  KeptIn in_ = KeptIn::kPinned;
  std::atomic<bool> retain_{false};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
