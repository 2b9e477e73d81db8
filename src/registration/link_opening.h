// Brings the ranks of a new home link together over TCP.
#ifndef COMMPOOL_SRC_REGISTRATION_LINK_OPENING_H_
#define COMMPOOL_SRC_REGISTRATION_LINK_OPENING_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/base/keyed_hash.h"
#include "src/base/socket.h"
#include "src/registration/home_link.h"

namespace commpool::internal {

struct LinkOpening {
  int rank = 0;
  int ranks = 1;
  std::chrono::milliseconds deadline{60000};
  HashKey key{};  // see AdmissionOptions
};

// Of the first channel of a link.
constexpr uint64_t kFirstChannel = 1;

// Rank 0: waits for every other rank. Where some do not come, those who did hear it in their first round.
Result<std::shared_ptr<HomeLink>> AcceptLink(const LinkOpening& opening, Listener listener);
// The others.
Result<std::shared_ptr<HomeLink>> JoinLink(const LinkOpening& opening, const std::string& address);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_LINK_OPENING_H_
