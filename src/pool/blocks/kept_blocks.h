// What a sleeping pool keeps of its blocks: a copy of the live ones in pinned memory of the host.
//
// One thread at a time, under the pool's growth lock; bytes() is any thread's. Calls the driver.
#ifndef COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
#define COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/driver/handles.h"
#include "src/engine/types.h"
#include "src/pool/blocks/block_store.h"

namespace commpool::internal {

class KeptBlocks {
 public:
  explicit KeptBlocks(const PoolBasis& basis) : basis_(basis) {}

  // REQUIRES: the device is quiet, and no thread's cache holds a block. Where it fails nothing is kept.
  Status Keep(const BlockStore& blocks);

  // Copies what was in a range back to where it was, and keeps it; does not wait. Blocks that were freed meanwhile are
  // free memory still. REQUIRES: the range is mapped, and the device's context is current.
  Status StartRestoring(const engine::SegmentRange& range);
  // Waits for all copies that were started, and returns the first failure. Before the memory is used, or goes again.
  Status AwaitRestoring();

  void Drop();
  // The runtime ends: the memory goes with the process.
  void Abandon() { memory_.Abandon(); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Direction { kToHost, kToDevice };
  static constexpr size_t kStreams = 4;

  // Of neighbouring blocks, and where they are on the host.
  struct Range {
    engine::SegmentRange device;
    uint64_t offset = 0;
  };

  static ReservedVector<Range> LiveRanges(const BlockStore& blocks, uint64_t* bytes);
  // Where one copy cannot be started those before it run: Await() waits for them.
  Status Start(const engine::SegmentRange& range, Direction direction);
  Status Await(const Status& started);
  Status MakeStreams();

  const PoolBasis& basis_;
  ReservedVector<Range> ranges_;  // by address
  PinnedMemory memory_;
  std::array<CopyStream, kStreams> streams_;  // while copies run
  size_t turn_ = 0;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
