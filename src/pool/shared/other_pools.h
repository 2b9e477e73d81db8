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
  // What pools hold that were destroyed while a capture or a graph kept their memory: no call of their own comes again;
  // and what collective calls that failed could not give back.
  // Nothing while a capture is open anywhere, and from pools for which no capture or graph has ended. It may wait for
  // their devices, so it is for calls that make, trim, close or destroy a pool.
  virtual void ReleaseDestroyed() = 0;
  // A line for each pool of the device: reserved, in use, cached, largest free block. The biggest holder first, and
  // where there are many the rest in one line.
  // Then what other allocators of the process say that they hold.
  virtual std::string DescribeHolders(int device) = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_OTHER_POOLS_H_
