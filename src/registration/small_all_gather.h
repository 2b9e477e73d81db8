// One all-gather of a few bytes over a communicator, for ranks that have no other way to talk yet.
//
// The deadline holds even if NCCL's call does not return, because a separate thread makes it. Where a rank does not
// come, that thread stays in the call until the program aborts the communicator.
#ifndef COMMPOOL_SRC_REGISTRATION_SMALL_ALL_GATHER_H_
#define COMMPOOL_SRC_REGISTRATION_SMALL_ALL_GATHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/communicator.h"
#include "src/registration/unanswered_gathers.h"

namespace commpool::internal {

// For error messages: the pool's call, and why a rank might not come.
struct GatherPurpose {
  const char* call;
  const char* likely_cause;
};

// Returns the bytes of all ranks, the communicator's rank 0's first. Collective over the communicator; its device must
// be current. `mine` is whole 32-bit words, as many on every rank. Where a rank is missing, the device may still run
// NCCL's kernel: the kernel's memory and stream go to `unanswered` then.
Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const GatherPurpose& purpose, uint64_t deadline_ms,
                                            UnansweredGathers& unanswered);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_SMALL_ALL_GATHER_H_
