// What one rank of a symmetric pool offers to the others during a call: descriptors of its segments.
//
// ShareServer's thread gives them to whoever knows the secret, which the ranks hear by their agreement. So no rank
// waits for another one that has failed before it asked.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/field_list.h"
#include "src/library/base/file_descriptor.h"
#include "src/library/base/keyed_hash.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

// Where an offer is, for the other ranks.
struct OfferPlace {
  std::string socket = {};
  HashKey secret = {};
  using Fields = FieldList<&OfferPlace::socket, &OfferPlace::secret>;
};

using OfferedDescriptors = std::shared_ptr<const std::vector<PrivateDescriptor>>;

// What ShareServer::Offer makes. The offer ends with the last copy of its descriptors.
struct RankOffer {
  OfferPlace place;
  OfferedDescriptors descriptors;
};

// The descriptor at that number of another rank's offer. kRemoteFailure where nobody offers there: the rank is on
// another host, in another container, or has ended. kDeadlineExceeded where it does not answer.
Result<FileDescriptor> TakeOffered(const OfferPlace& place, size_t number, Deadline deadline);

}  // namespace commpool::internal
