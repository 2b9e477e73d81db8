// How the ranks of a home find rank 0, and rank 0 them: its port is open to strangers, and lets ranks in alone.
//
// A rank has one connection to rank 0. On it both prove that they know the key of this link, which came over the home
// communicator, and neither sends it: rank 0 begins with a nonce, the rank answers with its own and a keyed hash of
// both, rank 0 with another. So a rank that has joined knows that rank 0 has it.
#ifndef COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_
#define COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_

#include <chrono>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/base/keyed_hash.h"
#include "src/base/socket.h"

namespace commpool::internal {

// One link between the ranks of a home.
struct LinkOptions {
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds deadline{60000};
  HashKey key{};  // made by rank 0 and sent with its address: keeps strangers and other links out
};

struct AdmittedRanks {
  std::vector<Connection> connections;  // [rank - 1]; not valid where that rank did not come
  Status status;                        // not OK names the ranks that are missing
};

// Rank 0: waits for every other rank. Where some do not come the others are admitted all the same, to be told so.
AdmittedRanks AdmitRanks(const LinkOptions& options, Listener listener);

// The others. Tries again where rank 0 had no room for a caller.
Result<Connection> JoinRankZero(const LinkOptions& options, const std::string& address);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_
