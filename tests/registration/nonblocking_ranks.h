// Nonblocking communicators of a group's ranks (config.blocking = 0), for tests of polling.
#ifndef COMMPOOL_TESTS_REGISTRATION_NONBLOCKING_RANKS_H_
#define COMMPOOL_TESTS_REGISTRATION_NONBLOCKING_RANKS_H_

#include <vector>

#include "tests/registration/rank_group.h"

namespace commpool::internal::testing {

// One communicator of all ranks; each rank's handle may not be ready yet.
inline std::vector<ncclComm_t> ConnectNonblocking(const Driver& driver, RankGroup& group) {
  const NcclLibrary& nccl = driver.nccl;
  ncclUniqueId id;
  EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> communicators(static_cast<size_t>(group.size()));
  ExpectOk(group.Run([&](Rank& rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = nccl.ncclCommInitRankConfig(&communicators[static_cast<size_t>(rank.number)],
                                                            rank.ranks, id, rank.number, &config);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << result;
    return Status();
  }));
  return communicators;
}

}  // namespace commpool::internal::testing

#endif  // COMMPOOL_TESTS_REGISTRATION_NONBLOCKING_RANKS_H_
