// What NCCL is set to do with memory that nobody told it of.
#ifndef COMMPOOL_SRC_REGISTRATION_NCCL_SETTINGS_H_
#define COMMPOOL_SRC_REGISTRATION_NCCL_SETTINGS_H_

#include "commpool/status.h"

namespace commpool::internal {

// kFailedPrecondition unless NCCL_LOCAL_REGISTER and NCCL_GRAPH_REGISTER are 0 in this process. Both are 1 by default:
// NCCL then registers the memory of each window, and the buffers of captured collectives, for itself, and graphs use
// these registrations (2.28.9 and 2.30.7, src/register). NCCL reads each once, so they are set before it is used. It
// writes what its configuration files say into the environment too.
Status CheckNcclRegistersNothingUnseen();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_NCCL_SETTINGS_H_
