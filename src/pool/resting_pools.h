// RestingPools: the pools that are registered with a communicator rest while it sleeps. Their windows end before NCCL
// gives its memory back and come back after it, to their places; memory and blocks stay where they are.
#ifndef COMMPOOL_SRC_POOL_RESTING_POOLS_H_
#define COMMPOOL_SRC_POOL_RESTING_POOLS_H_

#include <memory>
#include <vector>

#include "commpool/status.h"
#include "src/pool/shared/pool_table.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

// SleepingCommunicators has one for each communicator that sleeps. On the thread of the call, without a lock.
class RestingPools {
 public:
  explicit RestingPools(const PoolTable& pools) : pools_(pools) {}

  // kFailedPrecondition, with the pool's name, where one is awake that cannot rest by a call over the communicator's
  // ranks alone. Changes nothing; the answer goes to the other ranks.
  Status Check(const Communicator& communicator) const;
  // Both are collective over the communicator. Where one pool fails the later ones are as they were: Wake() brings the
  // earlier ones back.
  Status Rest(const Communicator& communicator);
  // All that rest, also where one fails: it rests on, and the error names it. A pool that the program has ended or
  // woken meanwhile is left alone.
  Status Wake();

 private:
  // In the order of their creation, which is the same on all ranks.
  std::vector<std::shared_ptr<Pool>> RegisteredWith(const Communicator& communicator) const;

  const PoolTable& pools_;
  std::vector<PoolHandle> resting_;  // in the order in which they began
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_RESTING_POOLS_H_
