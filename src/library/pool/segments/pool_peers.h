// PoolPeers: the other devices of this process that may use a pool's memory.
#pragma once

#include <atomic>
#include <set>
#include <vector>

#include "commpool/status.h"
#include "src/library/backing/backing.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/segments/segment_book.h"

namespace commpool::internal {

// SegmentStore has one. Peers change under the growth lock; a leaf lock of its own guards the set for others.
class PoolPeers {
 public:
  // Known from the pool's options before it has a segment, so that the first one is made for them.
  PoolPeers(const PoolBasis& basis, BlockStore& blocks, const Backing& backing, const SegmentBook& book);

  // That have access to every segment, and get it to each new one.
  std::vector<int> Devices() const;
  // Whether other devices of this process may use the memory: peers, or any, as the backing makes it. One load.
  bool OthersMayUse() const { return others_may_use_.load(std::memory_order_acquire); }
  // Who reads and writes the memory, such as "0 1 cpu", and who may beside them; asks the driver, holds no lock.
  MemoryFacts Access() const;
  // All or none. Devices that have access already, and the pool's own, are skipped.
  Status Grant(const std::vector<int>& peers);
  // Waits for the pool's device and for each peer. kNotFound for a device that has no access.
  Status Revoke(const std::vector<int>& peers);
  // Waits for what the peers have submitted, at most until the pool's deadline.
  Status Await(const std::vector<int>& peers) const;

 private:
  void NoteOthersMayUse() COMMPOOL_REQUIRES(mutex_);

  const PoolBasis& basis_;
  BlockStore& blocks_;
  const Backing& backing_;
  const SegmentBook& book_;
  const bool made_for_others_;  // the backing opens it to other devices, or it is the host's
  mutable Mutex mutex_{LockRank::kLeaf};
  std::set<int> peers_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<bool> others_may_use_{false};
};

}  // namespace commpool::internal
