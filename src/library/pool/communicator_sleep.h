// SleepingCommunicators: communicators whose own memory has been given back, until their ranks wake them. The ranks
// agree before each step, over TCP, because NCCL waits in both calls for all ranks without a deadline.
//
// A communicator's owner calls it; nobody else may use that communicator meanwhile. Any thread may call it for other
// communicators.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <map>
#include <memory>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/pool/basis/pool_basis.h"
#include "src/library/pool/shared/tables.h"

namespace commpool::internal {

// Runtime owns one. It owns the channels over which the ranks of sleeping communicators will meet again. Lock: its own,
// a leaf, for the list alone: no wait and no call of NCCL is made under it.
class SleepingCommunicators {
 public:
  SleepingCommunicators(RuntimeParts& runtime, const PoolTable& pools) : runtime_(runtime), pools_(pools) {}

  // Both are collective over the communicator. Where a rank cannot, all ranks return its reason, and nothing has
  // changed; where a rank is missing, or fails inside NCCL's call, the communicator has to be aborted. `deadline_ms`
  // holds for the waking too.
  Status Sleep(ncclComm_t handle, uint64_t deadline_ms);
  // Afterwards every rank has seen the bytes of every other rank in a collective.
  Status Wake(ncclComm_t handle);

 private:
  // A communicator that sleeps, or that a call is putting to sleep or waking.
  struct Sleeper;
  using SleeperPointer = std::shared_ptr<Sleeper>;

  // The sleeper of a call that begins; kFailedPrecondition while another thread's call is under way. The call ends with
  // the pointer; the sleeper is kept where it sleeps then.
  Result<SleeperPointer> Begin(ncclComm_t handle);

  RuntimeParts& runtime_;
  const PoolTable& pools_;
  Mutex mutex_{LockRank::kLeaf};
  // An entry exists while a communicator sleeps or a call is under way.
  std::map<ncclComm_t, SleeperPointer> sleepers_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
