// What commpool must know of a communicator, which it asks NCCL once, and calls of NCCL that wait for other ranks, with
// a deadline. Values and functions: any thread.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/lost_ranks.h"

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
  kEnded,  // aborted or destroyed; a revoked one keeps its windows until it is aborted
};

// kFailedPrecondition while the communicator's own memory is away (see MemoryOf): NCCL does not check that.
Status CheckNotAsleep(const Driver& driver, ncclComm_t handle);

// Asks NCCL about a communicator. kInvalidArgument for null, kNotSupported where there is no NCCL, kCommunicatorError
// for one that is aborted or failed. It waits for a busy nonblocking one until the deadline (kDeadlineExceeded).
// kFailedPrecondition for one that is asleep. NCCL's API cannot tell a destroyed communicator from a live one: see
// rule 5.
Result<Communicator> DescribeCommunicator(const Driver& driver, ncclComm_t handle, uint64_t deadline_ms = 60000);

// What NCCL says of the communicator: ncclInProgress while a nonblocking one works on a call.
ncclResult_t StateOf(const Driver& driver, ncclComm_t handle);

// Waits until a nonblocking communicator has finished the call that returned `result`; a blocking one has finished
// already. kDeadlineExceeded where it does not finish in time; kRemoteFailure, with the rank's name, where a rank is
// lost meanwhile.
Status AwaitCommunicator(const Driver& driver, const Communicator& communicator, ncclResult_t result, const char* call,
                         uint64_t bytes, uint64_t deadline_ms);

// A call of NCCL that may block on the host, on a thread of its own: so the deadline holds also where it does not
// return. Then the thread stays in it until the program aborts the communicator.
//
// Begins the call, with the caller's context current. The call may outlive everything of the caller.
std::future<ncclResult_t> CallSeparately(const Driver& driver, const std::function<ncclResult_t()>& call);

// Whether it returns before the deadline, and before a rank is lost.
bool HasReturned(const std::future<ncclResult_t>& call, const Communicator& communicator,
                 std::chrono::steady_clock::time_point deadline);

// The memory that NCCL takes for a communicator itself. Windows and registered buffers are not in it. Since 2.29.7
// there are calls that give its buffers back and make them again.
struct CommunicatorMemory {
  uint64_t bytes = 0;           // of this rank's device
  uint64_t sleeping_bytes = 0;  // the part that sleep gives back, or has given back
  bool asleep = false;
};

// kNotSupported where NCCL has no such figures; the message names the version.
Result<CommunicatorMemory> MemoryOf(const Driver& driver, ncclComm_t communicator);

// NCCL's calls, on a thread of their own, bounded by the deadline: NCCL waits for all ranks without one. After a
// failure the communicator has to be aborted, for NCCL may still wait for a rank. OK says nothing about peers' memory.
// The communicator's device must be current.
Status GiveMemoryBack(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms);
Status MakeMemoryAgain(const Driver& driver, const Communicator& communicator, uint64_t deadline_ms);

}  // namespace commpool::internal
