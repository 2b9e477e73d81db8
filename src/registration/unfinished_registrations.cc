#include "src/registration/unfinished_registrations.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace commpool::internal {

void UnfinishedRegistrations::Add(UnfinishedRegistration registration) {
  registrations_.push_back(std::move(registration));
}

ReservedVector<UnfinishedRegistration> UnfinishedRegistrations::Take(ncclComm_t communicator) {
  const auto others = [&](const UnfinishedRegistration& one) { return one.communicator.handle != communicator; };
  const auto first = std::stable_partition(registrations_.begin(), registrations_.end(), others);
  ReservedVector<UnfinishedRegistration> taken(std::make_move_iterator(first),
                                               std::make_move_iterator(registrations_.end()));
  registrations_.erase(first, registrations_.end());
  return taken;
}

bool UnfinishedRegistrations::AnyWith(ncclComm_t communicator) const {
  return std::any_of(registrations_.begin(), registrations_.end(),
                     [&](const UnfinishedRegistration& one) { return one.communicator.handle == communicator; });
}

Status UnfinishedRegistrations::CheckNoneOf(uint32_t segment) const {
  const bool none = std::none_of(registrations_.begin(), registrations_.end(),
                                 [&](const UnfinishedRegistration& one) { return one.segment == segment; });
  if (none) return Status();
  return Status(StatusCode::kDeadlineExceeded, "NCCL has not finished a registration of segment " +
                                                   std::to_string(segment) +
                                                   ": abandon the communicator, and abort it");
}

}  // namespace commpool::internal
