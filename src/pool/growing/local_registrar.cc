#include "src/pool/growing/local_registrar.h"

namespace commpool::internal {

Status LocalRegistrar::RegisterWith(ncclComm_t handle) {
  MutexLock collective(parts_.collective);
  Status open = parts_.CheckOpen();
  if (!open.ok()) return open;
  const Capability capability = parts_.segments.backing().CanRegisterLocal();
  if (!capability.available) {
    return Status(StatusCode::kNotSupported, parts_.basis.title + ": " + capability.reason);
  }
  Result<Communicator> communicator = DescribeCommunicator(parts_.basis.driver, handle, parts_.basis.deadline_ms());
  if (!communicator.ok()) return communicator.status();
  if (communicator->device != parts_.basis.device->device()) {
    return Status(StatusCode::kInvalidArgument, parts_.basis.title +
                                                    " cannot be registered with a communicator of device " +
                                                    std::to_string(communicator->device));
  }
  MutexLock growth(parts_.segments.growth());
  return parts_.registrations.Add(*communicator, parts_.segments.List());
}

Result<uint64_t> LocalRegistrar::RegisterPending() {
  MutexLock collective(parts_.collective);
  Status open = parts_.CheckOpen();
  if (!open.ok()) return open;
  MutexLock growth(parts_.segments.growth());
  return parts_.registrations.RegisterPending(parts_.segments.List());
}

Status LocalRegistrar::Deregister(ncclComm_t communicator) {
  MutexLock collective(parts_.collective);
  if (!parts_.registrations.Has(communicator)) return Status();
  const Status unpinned = parts_.pins.CheckMayDeregister();
  if (!unpinned.ok()) return parts_.basis.Named(unpinned);
  Status status = parts_.basis.device->Quiesce(parts_.basis.deadline_ms());
  if (!status.ok()) return status;
  return parts_.registrations.Remove(communicator);
}

}  // namespace commpool::internal
