// What commpool must know of a communicator; NCCL is asked once. Values: any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_
#define COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/lost_ranks.h"

namespace commpool::internal {

struct Communicator {
  ncclComm_t handle = nullptr;
  int rank = 0;
  int ranks = 1;
  int device = 0;
  uint64_t number = 0;  // for a symmetric pool: the place in collective calls; home has 0

  // The lost ranks of a symmetric pool's home: they come to no call on this communicator either. Null where nobody
  // watches.
  std::shared_ptr<const LostRanks> lost = nullptr;

  // kRemoteFailure with the rank's name where `call` waits for a lost rank.
  Status CheckNoneLost(const char* call) const;
};

// Whether a communicator that the program abandons is still alive: NCCL cannot be asked about an ended one.
enum class CommunicatorLife {
  kAlive,  // NCCL may be called with it
  kEnded,  // aborted, destroyed or revoked
};

// kInvalidArgument for null, kNotSupported where there is no NCCL, kCommunicatorError for one that is aborted or
// failed; a nonblocking one that is still busy is awaited until the deadline (kDeadlineExceeded). A pointer to a
// destroyed communicator cannot be told from a live one by NCCL's API: see rule 5.
Result<Communicator> DescribeCommunicator(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms = 60000);

// Waits, within the deadline, for a nonblocking communicator to finish what it began; at once for a blocking one. Ends
// with kRemoteFailure, and the rank's name, where a rank is lost meanwhile.
Status AwaitCommunicator(const Driver& driver, const Communicator& communicator, ncclResult_t result, const char* call,
                         uint64_t bytes, uint64_t deadline_ms);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_H_
