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
#include "src/library/pool/shared/device_state.h"
#include "src/library/pool/shared/pool_table.h"
#include "src/library/registration/agreement_channel.h"
#include "src/library/registration/communicator.h"
#include "src/library/registration/intent.h"

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
  // A communicator that sleeps, or that a call is putting to sleep or waking. Only the thread whose call is under way
  // changes it (`busy`).
  struct Sleeper {
    Communicator communicator;
    std::shared_ptr<DeviceState> device;
    // Made for the sleep, and kept for the waking: in between the communicator itself cannot carry a message.
    std::unique_ptr<AgreementChannel> channel;
    uint64_t deadline_ms = 0;
    bool busy = false;  // a call is under way
    bool asleep = false;
  };
  using SleeperPointer = std::shared_ptr<Sleeper>;

  // The sleeper of a call that begins; kFailedPrecondition while another thread's call is under way. The call ends with
  // the pointer; the sleeper is kept where it sleeps then.
  Result<SleeperPointer> Begin(ncclComm_t handle);
  void End(ncclComm_t handle, Sleeper& sleeper);
  // Connects to the communicator's ranks. Collective over it.
  Status Open(Sleeper& sleeper, ncclComm_t handle, uint64_t deadline_ms);
  // Returns what all ranks return.
  Status Agree(const Sleeper& sleeper, CollectiveCall call, const Status& readiness) const;
  // Of this rank, before anything has changed.
  Status CheckMaySleep(const Sleeper& sleeper) const;
  Status CheckNoPoolUses(const Communicator& communicator) const;
  Status CheckMayWake(const Sleeper& sleeper, const CommunicatorMemory& memory) const;
  // Both call NCCL after all ranks have agreed that they can.
  Status FallAsleep(Sleeper& sleeper);
  Status WakeUp(Sleeper& sleeper);
  // Sends bytes that every rank knows through NCCL's buffers, and compares what arrives.
  Status CheckCollective(const Sleeper& sleeper) const;
  // Of a step inside a round: the round's own deadline must still hold for what the other ranks tell.
  static uint64_t PartOf(uint64_t deadline_ms) { return deadline_ms / 2; }

  RuntimeParts& runtime_;
  const PoolTable& pools_;
  Mutex mutex_{LockRank::kLeaf};
  // An entry exists while a communicator sleeps or a call is under way.
  std::map<ncclComm_t, SleeperPointer> sleepers_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
