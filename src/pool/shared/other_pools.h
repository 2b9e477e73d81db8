// OtherPools: what a pool may ask of the other pools of its runtime: to release what they do not use, and who holds
// what.
//
// Pools know nothing else of each other, not even their table. MemorySearch implements it. Any thread, without a lock.
#ifndef COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
#define COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_

#include <cstdint>
#include <string>

#include "src/pool/shared/block_owner.h"

namespace commpool::internal {

class OtherPools {
 public:
  virtual ~OtherPools() = default;

  // Makes the device's pools, except the asking one, release what they do not use. Returns the released bytes.
  virtual uint64_t ReleaseUnused(int device, const BlockOwner* asks) = 0;
  // Releases what destroyed pools still hold because of a capture or a graph (they get no call of their own any more),
  // and what failed collective calls could not release. Does nothing while a capture is open anywhere, nor for pools
  // for which no capture or graph has ended. It may wait for their devices, so call it where a pool is made, trimmed,
  // closed or destroyed.
  virtual void ReleaseDestroyed() = 0;
  // One line for each pool of the device: reserved, in use, cached, largest free block. The largest holder comes first;
  // of many, the rest share one line. Then what the process's other allocators say they hold.
  virtual std::string DescribeHolders(int device) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
