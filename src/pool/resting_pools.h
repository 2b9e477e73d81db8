// RestingPools: the pools that are registered with a communicator rest while it sleeps. Their windows end before NCCL
// gives its memory back and come back after it, to their places; memory and blocks stay where they are.
#ifndef COMMPOOL_SRC_POOL_RESTING_POOLS_H_
#define COMMPOOL_SRC_POOL_RESTING_POOLS_H_

#include <memory>
#include <string>
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
  // The names of those that would rest, and of those that do. Ranks compare them before they call a pool together.
  std::string NamesFor(const Communicator& communicator) const;
  std::string NamesOfResting() const;
  // Both are collective over the communicator. Where one pool fails the later ones are as they were: Wake() brings the
  // earlier ones back.
  Status Rest(const Communicator& communicator);
  // All that rest, also where one fails: it rests on, and the error names it. A pool that the program has ended or
  // woken meanwhile is left alone.
  Status Wake();

 private:
  using Pools = std::vector<std::shared_ptr<Pool>>;
  // The newest first. NCCL places a window by what is there: a pool's windows come back where the older pools have
  // theirs by then.
  Pools RegisteredWith(const Communicator& communicator) const;
  Pools Resting() const;

  const PoolTable& pools_;
  std::vector<PoolHandle> resting_;  // the oldest first, which is to wake first
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_RESTING_POOLS_H_
