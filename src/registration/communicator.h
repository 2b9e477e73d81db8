// What commpool must know of a communicator. It asks NCCL once. Values: any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_
#define COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/lost_ranks.h"

namespace commpool::internal {

// One communicator of the program. commpool never owns the handle: the program destroys it (rule 5).
struct Communicator {
  ncclComm_t handle = nullptr;
  int rank = 0;
  int ranks = 1;
  int device = 0;
  uint64_t number = 0;  // for a symmetric pool: collective calls serve communicators in this order; home has 0

  // The lost ranks of a symmetric pool's home: they come to no call on this communicator either. Null where nobody
  // watches for losses.
  std::shared_ptr<const LostRanks> lost = nullptr;

  // kRemoteFailure with the rank's name where `call` waits for a lost rank.
  Status CheckNoneLost(const char* call) const;
};

// What the program says of a communicator that it abandons. NCCL must not be called with one that has ended.
enum class CommunicatorLife {
  kAlive,  // NCCL may be called with it
  kEnded,  // aborted, destroyed or revoked
};

// kFailedPrecondition while the communicator's own memory is away (communicator_memory.h): NCCL does not check that.
Status CheckNotAsleep(const Driver& driver, ncclComm_t handle);

// Asks NCCL about a communicator. kInvalidArgument for null, kNotSupported where there is no NCCL, kCommunicatorError
// for one that is aborted or failed. It waits for a busy nonblocking one until the deadline (kDeadlineExceeded).
// kFailedPrecondition for one that is asleep. NCCL's API cannot tell a destroyed communicator from a live one: see
// rule 5.
Result<Communicator> DescribeCommunicator(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms = 60000);

// Waits until a nonblocking communicator has finished the call that returned `result`; a blocking one has finished
// already. kDeadlineExceeded where it does not finish in time; kRemoteFailure, with the rank's name, where a rank is
// lost meanwhile.
Status AwaitCommunicator(const Driver& driver, const Communicator& communicator, ncclResult_t result, const char* call,
                         uint64_t bytes, uint64_t deadline_ms);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_
