// Symmetric pools and communicators: register_with, deregister, abandon.
#include <algorithm>

#include "src/pool/symmetric_pool.h"

namespace commpool::internal {

Result<Communicator> SymmetricPool::Examine(ncclComm_t handle) const {
  Result<Communicator> described = DescribeCommunicator(driver_, handle, configuration_.deadline_ms);
  if (!described.ok()) return described;
  if (described->device != device()) {
    return Status(StatusCode::kInvalidArgument, "the communicator is of device " + std::to_string(described->device) +
                                                    ", the pool of " + std::to_string(device()));
  }
  for (const Communicator& held : registrations_.Communicators()) {
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

DomainClaim SymmetricPool::ClaimOf(const Communicator& communicator) const {
  DomainClaim claim;
  if (communicator.handle == nullptr) return claim;
  claim.passed = true;
  claim.rank = communicator.rank;
  claim.ranks = communicator.ranks;
  if (communicator.handle == home_.handle) claim.number = DomainTable::kHome;
  for (const Communicator& held : registrations_.Communicators()) {
    if (held.handle == communicator.handle) claim.number = held.number;
  }
  return claim;
}

Result<std::vector<DomainClaim>> SymmetricPool::CheckHeld(const Agreed& agreed) {
  Result<std::vector<DomainClaim>> claims = DecodeClaims(agreed.claims);
  Status status = claims.ok() ? domains_.CheckHeld(*claims) : claims.status();
  if (!status.ok()) return Status(status.code(), Title() + ": " + status.message());
  return claims;
}

Status SymmetricPool::Meet(const std::vector<DomainClaim>& claims, Communicator* communicator) {
  const auto is_new = [](const DomainClaim& claim) { return claim.passed && !claim.number; };
  if (std::none_of(claims.begin(), claims.end(), is_new)) return Status();
  Result<Members> met = Members();
  if (is_new(claims[static_cast<size_t>(home_.rank)])) {
    // Sooner than the ranks that do not wait here would give this one up.
    met = GatherMembers(driver_, *communicator, home_.rank, configuration_.deadline_ms / 2);
  }
  Result<std::vector<Members>> communicators = AgreeOnMembers(*channel_, met);
  if (!communicators.ok()) return communicators.status();
  if (const auto number = domains_.Add(*communicators, home_.rank)) communicator->number = *number;
  return Status();
}

Status SymmetricPool::RegisterWith(ncclComm_t handle) {
  MutexLock collective(collective_);
  ContextGuard guard(driver_, device_->context());
  Status readiness = CheckOpen();
  Communicator communicator;
  if (readiness.ok() && handle != nullptr) {
    Result<Communicator> described = Examine(handle);
    readiness = described.status();
    if (described.ok()) communicator = *described;
  }
  Result<Agreed> agreed = Begin(CollectiveCall::kRegister, 0, readiness, ClaimOf(communicator));
  if (!agreed.ok()) return agreed.status();
  const Result<std::vector<DomainClaim>> claims = CheckHeld(*agreed);
  if (!claims.ok()) return claims.status();
  Status status = domains_.CheckPassedByAll(*claims);
  const uint64_t first_new = domains_.next();
  if (status.ok()) status = Meet(*claims, &communicator);
  if (!status.ok()) return Status(status.code(), Title() + ": register_with: " + status.message());

  const bool known = handle == nullptr || registrations_.Has(handle);
  const Status mine = handle == nullptr ? Status() : registrations_.Add(communicator, Segments());
  status = AgreeOnOutcome(*channel_, mine, "registering with a communicator");
  if (!status.ok()) {
    if (mine.ok() && !known) static_cast<void>(registrations_.Remove(handle));
    domains_.RemoveFrom(first_new);
    return Status(status.code(), Title() + ": " + status.message());
  }
  const auto is_home = [](const DomainClaim& claim) { return claim.number == DomainTable::kHome; };
  if (std::any_of(claims->begin(), claims->end(), is_home)) domains_.AddHome();
  return Status();
}

Status SymmetricPool::Deregister(ncclComm_t handle) {
  MutexLock collective(collective_);
  if (channel_ == nullptr) return Status();  // closed: nothing is registered
  ContextGuard guard(driver_, device_->context());
  Result<Agreed> agreed = Begin(CollectiveCall::kDeregister, 0, device_->health().first_error(),
                                registrations_.Has(handle) ? ClaimOf({.handle = handle, .ranks = 1}) : DomainClaim());
  if (!agreed.ok()) return agreed.status();
  const Result<std::vector<DomainClaim>> claims = DecodeClaims(agreed->claims);
  Status status = claims.ok() ? domains_.CheckPassedByHolders(*claims) : claims.status();
  if (!status.ok()) return Status(status.code(), Title() + ": deregister: " + status.message());
  return TearDown(
      [&] {
        for (const DomainClaim& claim : *claims) {
          if (claim.number) domains_.Remove(*claim.number);
        }
        return handle == nullptr ? Status() : registrations_.Remove(handle);
      },
      [] { return Status(); });  // the memory stays
}

Status SymmetricPool::TearDown(const std::function<Status()>& deregister, const std::function<Status()>& unmap) {
  // NCCL drains nothing when it deregisters, and beside a running collective it can deadlock: quiesce first.
  Status status = AgreeOnOutcome(*channel_, WaitForDevice(), "waiting for the device");
  if (!status.ok()) return status;
  // Every rank has quiesced. Deregister on every communicator, before the caller destroys any.
  status = AgreeOnOutcome(*channel_, deregister(), "deregistering");
  if (!status.ok()) return status;
  // Every rank has deregistered: until then peers' imports keep the memory alive, and an address that is given out
  // again would be another block under an old window.
  return unmap();
}

Status SymmetricPool::AbandonCommunicator(ncclComm_t communicator) {
  registrations_.Abandon(communicator);
  if (communicator == home_.handle) StopPublishing();
  return Status();
}

}  // namespace commpool::internal
