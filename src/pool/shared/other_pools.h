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
  // Releases memory that destroyed pools still hold because of a capture or a graph: a program has no handle any more
  // to trim them. Also releases what failed collective calls could not release. Does nothing while a capture is open
  // anywhere, nor for pools without a capture or graph that has ended. It may wait for their devices, so call it where
  // a pool is made, trimmed, closed or destroyed.
  virtual void ReleaseDestroyed() = 0;
  // One line for each pool of the device: reserved, in use, cached, largest free block. The largest holder comes first;
  // the smallest of many share one line. Then one line for each other allocator of the process, with what it says it
  // holds.
  virtual std::string DescribeHolders(int device) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
