#include "src/pool/symmetric/symmetric_registrar.h"

#include <algorithm>

namespace commpool::internal {

Status SymmetricRegistrar::AddHome() {
  domains_.AddHome();
  return parts_.registrations.Add(home_, {});
}

Result<Communicator> SymmetricRegistrar::Examine(ncclComm_t handle) const {
  Result<Communicator> described = DescribeCommunicator(parts_.basis.driver, handle, parts_.basis.deadline_ms());
  if (!described.ok()) return described;
  const int device = parts_.basis.device->device();
  if (described->device != device) {
    return Status(StatusCode::kInvalidArgument, "the communicator is of device " + std::to_string(described->device) +
                                                    ", the pool of " + std::to_string(device));
  }
  for (const Communicator& held : parts_.registrations.Communicators()) {
    if (held.handle != handle) continue;
    if (held.rank != described->rank || held.ranks != described->ranks) {
      return Status(StatusCode::kFailedPrecondition,
                    "the communicator has the address of one that is registered: that was destroyed without "
                    "deregister(); abandon() its address first");
    }
    return held;
  }
  return described;
}

DomainClaim SymmetricRegistrar::ClaimOf(const Communicator& communicator) const {
  DomainClaim claim;
  if (communicator.handle == nullptr) return claim;
  claim.passed = true;
  claim.rank = communicator.rank;
  claim.ranks = communicator.ranks;
  if (communicator.handle == home_.handle) claim.number = DomainTable::kHome;
  for (const Communicator& held : parts_.registrations.Communicators()) {
    if (held.handle == communicator.handle) claim.number = held.number;
  }
  return claim;
}

Result<std::vector<DomainClaim>> SymmetricRegistrar::CheckHeld(const Agreed& agreed) {
  Result<std::vector<DomainClaim>> claims = DecodeClaims(agreed.claims);
  Status status = claims.ok() ? domains_.CheckHeld(*claims) : claims.status();
  if (!status.ok()) return parts_.basis.Named(status);
  return claims;
}

Status SymmetricRegistrar::Meet(const std::vector<DomainClaim>& claims, Communicator* communicator) {
  const auto is_new = [](const DomainClaim& claim) { return claim.passed && !claim.number; };
  if (std::none_of(claims.begin(), claims.end(), is_new)) return Status();
  Result<Members> met = Members();
  if (is_new(claims[static_cast<size_t>(home_.rank)])) {
    // Sooner than the ranks that do not wait here would give this one up.
    met = GatherMembers(parts_.basis.driver, *communicator, home_.rank, parts_.basis.deadline_ms() / 2);
  }
  Result<std::vector<Members>> communicators = AgreeOnMembers(collective_.channel(), met);
  if (!communicators.ok()) return communicators.status();
  if (const auto number = domains_.Add(*communicators, home_.rank)) communicator->number = *number;
  return Status();
}

Status SymmetricRegistrar::RegisterWith(ncclComm_t handle) {
  const ContextGuard current = parts_.basis.MakeCurrent();
  Status readiness = parts_.CheckOpen();
  Communicator communicator;
  if (readiness.ok() && handle != nullptr) {
    Result<Communicator> described = Examine(handle);
    readiness = described.status();
    if (described.ok()) communicator = *described;
  }
  Result<Agreed> agreed =
      collective_.Begin({.call = CollectiveCall::kRegister, .readiness = readiness, .claim = ClaimOf(communicator)});
  if (!agreed.ok()) return agreed.status();
  const Result<std::vector<DomainClaim>> claims = CheckHeld(*agreed);
  if (!claims.ok()) return claims.status();
  Status status = domains_.CheckPassedByAll(*claims);
  const uint64_t first_new = domains_.next();
  if (status.ok()) status = Meet(*claims, &communicator);
  if (!status.ok()) {
    return parts_.basis.Named(status.Under("register_with"));
  }
  const bool known = handle == nullptr || parts_.registrations.Has(handle);
  status = collective_.Run({.name = "registering with a communicator",
                            .act =
                                [&] {
                                  return handle == nullptr
                                             ? Status()
                                             : parts_.registrations.Add(communicator, parts_.segments.List());
                                },
                            .undo =
                                [&](const Status& mine) COMMPOOL_UNCHECKED {
                                  if (mine.ok() && !known) static_cast<void>(parts_.registrations.Remove(handle));
                                  domains_.RemoveFrom(first_new);
                                }});
  if (!status.ok()) return parts_.basis.Named(status);
  const auto is_home = [](const DomainClaim& claim) { return claim.number == DomainTable::kHome; };
  if (std::any_of(claims->begin(), claims->end(), is_home)) domains_.AddHome();
  return Status();
}

Status SymmetricRegistrar::Deregister(ncclComm_t handle) {
  const ContextGuard current = parts_.basis.MakeCurrent();
  const bool held = parts_.registrations.Has(handle);
  Result<Agreed> agreed = collective_.Begin({.call = CollectiveCall::kDeregister,
                                             .readiness = parts_.basis.device->health().first_error(),
                                             .claim = held ? ClaimOf({.handle = handle, .ranks = 1}) : DomainClaim()});
  if (!agreed.ok()) return agreed.status();
  const Result<std::vector<DomainClaim>> claims = DecodeClaims(agreed->claims);
  Status status = claims.ok() ? domains_.CheckPassedByHolders(*claims) : claims.status();
  if (!status.ok()) {
    return parts_.basis.Named(status.Under("deregister"));
  }
  return collective_.TearDown(
      [&]() COMMPOOL_UNCHECKED {
        for (const DomainClaim& claim : *claims) {
          if (claim.number) domains_.Remove(*claim.number);
        }
        return handle == nullptr ? Status() : parts_.registrations.Remove(handle);
      },
      [] { return Status(); });  // the memory stays
}

}  // namespace commpool::internal
