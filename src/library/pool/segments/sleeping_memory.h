// SleepingMemory: takes the memory of a pool from its addresses, and brings it back there with what was kept.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SLEEPING_MEMORY_H_
#define COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SLEEPING_MEMORY_H_

#include <cstdint>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/base/progress.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/blocks/kept_blocks.h"
#include "src/library/pool/segments/pool_room.h"
#include "src/library/pool/segments/segment_book.h"

namespace commpool::internal {

// SegmentStore has one, for backings with pages. Sleeping (sleep.h) calls it, while nobody uses the memory and nothing
// is registered. It calls the driver.
class SleepingMemory {
 public:
  SleepingMemory(const PoolBasis& basis, const BlockStore& blocks, Backing& backing, const SegmentBook& book,
                 PoolRoom& room)
      : basis_(basis), blocks_(blocks), backing_(backing), book_(book), room_(room), kept_(basis) {}

  // Unmaps all memory. Where it fails the memory is mapped as before.
  Status UnmapAll() COMMPOOL_REQUIRES(kGrowthLock);
  // Maps again what UnmapAll unmapped, with its contents.
  Status MapAll() COMMPOOL_REQUIRES(kGrowthLock);
  // Releases the memory and its room; addresses and books stay. Cannot be undone, so it comes last in a sleep.
  void ReleaseUnmapped() COMMPOOL_REQUIRES(kGrowthLock);
  // Makes and maps memory at the same addresses, and copies kept blocks back. Where it fails it releases the memory
  // again, and no copy runs any more.
  Status Wake() COMMPOOL_REQUIRES(kGrowthLock);
  // The host's copy of a sleeping pool's live blocks.
  KeptBlocks& kept() COMMPOOL_REQUIRES(kGrowthLock) { return kept_; }
  // The runtime ends: nobody calls the driver for the copies any more.
  void Abandon() { kept_.Abandon(); }
  // Sets whether the copies stay once the pool is awake. Waits for a sleep or wake that is under way, as the next two.
  Status Retain(bool retain);
  // Where a program can read the host's copy of a range.
  Result<const std::byte*> Find(CUdeviceptr address, uint64_t bytes);
  // Drops the copies, for a pool that has ended, so that no sleep keeps blocks again.
  void Drop();
  // Any thread, for statistics.
  uint64_t kept_bytes() const { return kept_.bytes(); }

 private:
  // Makes and maps memory, piece by piece, and starts the copies of each.
  Status WakeSegments(Progress& progress) COMMPOOL_REQUIRES(kGrowthLock);
  Status WakeSegment(Segment& segment, Progress& progress) COMMPOOL_REQUIRES(kGrowthLock);

  const PoolBasis& basis_;
  const BlockStore& blocks_;
  Backing& backing_;
  const SegmentBook& book_;
  PoolRoom& room_;
  KeptBlocks kept_;  // the growth lock guards it
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_SEGMENTS_SLEEPING_MEMORY_H_
