// What a sleeping pool keeps of its blocks: a copy of the live ones in pinned memory of the host.
//
// One thread at a time, under the pool's growth lock; bytes() is any thread's. Calls the driver.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_

#include <atomic>
#include <cstdint>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/driver/host_transfer.h"
#include "src/engine/types.h"
#include "src/pool/blocks/block_store.h"

namespace commpool::internal {

class KeptBlocks {
 public:
  // REQUIRES: the device is quiet, and no thread's cache holds a block. Where it fails nothing is kept.
  Status Keep(const PoolBasis& basis, const BlockStore& blocks);
  // Copies all of it back to where it was, and keeps it. Blocks that were freed meanwhile are free memory still.
  Status Restore(const PoolBasis& basis);
  void Drop(const PoolBasis& basis);
  // The runtime ends: the memory goes with the process.
  void Abandon() { memory_.Abandon(); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Direction { kToHost, kToDevice };

  Status Copy(const PoolBasis& basis, Direction direction);

  ReservedVector<engine::SegmentRange> ranges_;  // of neighbouring blocks, in the order of their copies
  PinnedMemory memory_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
