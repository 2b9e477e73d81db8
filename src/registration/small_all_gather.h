// One all-gather of a few bytes over a communicator: its ranks meet before they have another way to talk.
//
// The deadline holds also where NCCL's own call does not return: a separate thread makes that call, and stays in it
// where a rank does not come. The caller then aborts the communicator, which ends the thread.
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

// For messages: the pool's call, and why a rank might not come.
struct GatherPurpose {
  const char* call;
  const char* likely_cause;
};

// Everybody's bytes, the communicator's rank 0's first. Collective over the communicator, of whole 32-bit words, as
// many on every rank; its device must be current. Where a rank is missing the device may still run NCCL's kernel:
// what that uses is among the unanswered ones then.
Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const GatherPurpose& purpose, uint64_t deadline_ms,
                                            UnansweredGathers& unanswered);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_SMALL_ALL_GATHER_H_
