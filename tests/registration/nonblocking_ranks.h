// Nonblocking communicators of a group's ranks (config.blocking = 0), for tests of polling.
#pragma once

#include <vector>

#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

// One communicator of all ranks; each rank's handle may not be ready yet.
inline std::vector<ncclComm_t> ConnectNonblocking(RankGroup& group) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return group.ConnectFrom(0, config);
}

}  // namespace commpool::internal::testing
