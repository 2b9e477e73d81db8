// What a pool may ask of the others of its runtime: to give back what they do not use, and who holds what.
//
// Pools know nothing else of each other, and not the table that they are in. Any thread, without a lock.
#ifndef COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
#define COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_

#include <cstdint>
#include <string>

#include "src/pool/shared/block_owner.h"

namespace commpool::internal {

class OtherPools {
 public:
  virtual ~OtherPools() = default;

  // Lets the pools of the device, but for the one that asks, give back what they do not use. Returns the bytes
  // released.
  virtual uint64_t ReleaseUnused(int device, const BlockOwner* asks) = 0;
  // Releases what destroyed pools still hold because a capture or a graph kept their memory (no call of their own comes
  // again), and what failed collective calls could not give back. Does nothing while a capture is open anywhere, nor
  // for pools for which no capture or graph has ended. It may wait for their devices, so call it where a pool is made,
  // trimmed, closed or destroyed.
  virtual void ReleaseDestroyed() = 0;
  // A line for each pool of the device: reserved, in use, cached, largest free block. The biggest holder first, and
  // where there are many the rest in one line.
  // Then what other allocators of the process say that they hold.
  virtual std::string DescribeHolders(int device) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
