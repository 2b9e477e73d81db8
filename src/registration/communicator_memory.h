// The memory that NCCL takes for a communicator itself, and the calls that give its buffers back and make them again
// (since 2.29.7). Windows and registered buffers are not in it.
#ifndef COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_MEMORY_H_
#define COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_MEMORY_H_

#include <cstdint>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

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

#endif  // COMMPOOL_SRC_REGISTRATION_COMMUNICATOR_MEMORY_H_
