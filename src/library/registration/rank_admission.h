// How the ranks of a home connect to rank 0. Its port is open to strangers too, but only ranks are let in.
//
// The ranks introduce themselves once, over the home communicator. So all learn where rank 0 listens, and whether every
// rank can reach it.
//
// Then a rank makes one connection to rank 0. On it both prove that they know the key of this link, which came with the
// introduction; neither sends the key. Rank 0 begins with a nonce, a random number used once. The rank answers with a
// nonce of its own and a keyed hash of both, and rank 0 with another such hash. So a rank that has joined knows that
// rank 0 has let it in.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/field_list.h"
#include "src/library/base/keyed_hash.h"
#include "src/library/base/socket.h"
#include "src/library/registration/wire.h"

namespace commpool::internal {

// What one rank tells all others. Ranks other than 0 leave the fields empty that only rank 0 knows.
struct Introduction {
  static constexpr const char* kName = "introduction";
  std::string address = {};  // of rank 0; empty where it cannot listen
  std::string why = {};      // rank 0: why it cannot listen, or why only its own host reaches the address
  HashKey key{};
  uint64_t rank = 0;
  uint64_t host = 0;
  uint64_t link = 0;          // the id of the link that this rank has for this home; 0 for none
  uint64_t next_channel = 0;  // in that link
  using Fields = FieldList<&Introduction::address, &Introduction::why, &Introduction::key, &Introduction::rank,
                           &Introduction::host, &Introduction::link, &Introduction::next_channel>;
};

// Every version sends so many bytes, as whole 32-bit words (NCCL's ncclInt32), padded with zeros. NCCL takes the same
// number of bytes from each rank, and would not notice a rank that sends another number.
constexpr size_t kIntroductionBytes = 512;
std::string Pad(Introduction mine);
// The introductions of all ranks, rank 0's first.
Result<std::vector<Introduction>> DecodePadded(std::vector<std::string> introductions);

// Makes this rank's introduction. Rank 0 begins to listen.
Introduction Introduce(int rank, std::optional<Listener>& listener);

// Checks the introductions of all ranks, rank 0's first: OK where every rank can reach rank 0, the same error on all
// ranks otherwise.
Status CheckReach(const std::vector<Introduction>& all);

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
