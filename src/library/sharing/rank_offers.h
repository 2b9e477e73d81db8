// What one rank of a symmetric pool offers to the others during a call: descriptors of its segments.
//
// ShareServer's thread gives them to whoever knows the secret, which the ranks hear by their agreement. So no rank
// waits for another one that has failed before it asked.
#ifndef COMMPOOL_SRC_LIBRARY_SHARING_RANK_OFFERS_H_
#define COMMPOOL_SRC_LIBRARY_SHARING_RANK_OFFERS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/keyed_hash.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

class ShareServer;

// Where an offer is, for the other ranks.
struct OfferPlace {
  std::string socket;
  HashKey secret = {};
};

// Owns an offer: it ends with this object. Any thread.
class RankOffer {
 public:
  // What a rank offers that takes part with nothing.
  RankOffer() = default;
  // `server` outlives it.
  static Result<RankOffer> Make(ShareServer& server, std::vector<FileDescriptor> descriptors);
  RankOffer(RankOffer&& other) noexcept
      : server_(std::exchange(other.server_, nullptr)), place_(std::move(other.place_)) {}
  RankOffer& operator=(RankOffer&& other) noexcept {
    std::swap(server_, other.server_);
    std::swap(place_, other.place_);
    return *this;
  }
  ~RankOffer();

  const OfferPlace& place() const { return place_; }

 private:
  ShareServer* server_ = nullptr;
  OfferPlace place_;
};

// The descriptor at that number of another rank's offer. kRemoteFailure where nobody offers there: the rank is on
// another host, in another container, or has ended. kDeadlineExceeded where it does not answer.
Result<FileDescriptor> TakeOffered(const OfferPlace& place, size_t number, Deadline deadline);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_SHARING_RANK_OFFERS_H_
