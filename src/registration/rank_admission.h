// How the ranks of a home connect to rank 0. Its port is open to strangers too, but only ranks are let in.
//
// A rank makes one connection to rank 0. On it both prove that they know the key of this link, which came over the home
// communicator; neither sends the key. Rank 0 begins with a nonce, a random number used once. The rank answers with a
// nonce of its own and a keyed hash of both, and rank 0 with another such hash. So a rank that has joined knows that
// rank 0 has let it in.
#ifndef COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_
#define COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_

#include <chrono>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/base/keyed_hash.h"
#include "src/base/socket.h"

namespace commpool::internal {

// How to open one link between the ranks of a home.
struct LinkOptions {
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds deadline{60000};
  HashKey key{};  // made by rank 0 and sent with its address: keeps strangers and other links out
};

// The connections of rank 0.
struct AdmittedRanks {
  std::vector<Connection> connections;  // [rank - 1]; not valid where that rank did not come
  Status status;                        // not OK names the ranks that are missing
};

// For rank 0: waits for every other rank. Where some do not come, it still admits the others, so that it can tell them.
AdmittedRanks AdmitRanks(const LinkOptions& options, Listener listener);

// For the other ranks. Tries again where rank 0 had no room for a caller.
Result<Connection> JoinRankZero(const LinkOptions& options, const std::string& address);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_RANK_ADMISSION_H_
