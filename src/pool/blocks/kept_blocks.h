// KeptBlocks: what a sleeping pool keeps: a copy of its live blocks in pinned host memory.
//
// One thread at a time uses it, under the pool's growth lock; any thread may call bytes(). Calls the driver.
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

// SegmentStore owns one. Sleeping calls Keep, and waking restores, segment by segment.
class KeptBlocks {
 public:
  explicit KeptBlocks(const PoolBasis& basis) : basis_(basis) {}

  // Copies the live blocks. REQUIRES: the device is idle, and no thread's cache holds a block. Keeps nothing where it
  // fails.
  Status Keep(const BlockStore& blocks);

  // Begins to copy a range back to its place; does not wait. The host's copy stays. Blocks that were freed meanwhile
  // stay free. REQUIRES: the range is mapped, and the device's context is current.
  Status StartRestoring(const engine::SegmentRange& range);
  // Waits for all copies that were started, and returns the first failure. Call it before the memory is used or
  // released.
  Status AwaitRestoring();

  void Drop();
  // The runtime ends: leave the memory to the end of the process.
  void Abandon() { memory_.Abandon(); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Direction { kToHost, kToDevice };
  static constexpr size_t kStreams = 4;

  // Neighbouring blocks, and their place on the host.
  struct Range {
    engine::SegmentRange device;
    uint64_t offset = 0;
  };

  static ReservedVector<Range> LiveRanges(const BlockStore& blocks, uint64_t* bytes);
  // Starts copies. Where one cannot start the earlier ones still run: Await() waits for them.
  Status Start(const engine::SegmentRange& range, Direction direction);
  Status Await(const Status& started);
  Status MakeStreams();

  const PoolBasis& basis_;
  ReservedVector<Range> ranges_;  // in the order of addresses
  PinnedMemory memory_;
  std::array<CopyStream, kStreams> streams_;  // made while copies run
  size_t turn_ = 0;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BLOCKS_KEPT_BLOCKS_H_
