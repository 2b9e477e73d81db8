// A symmetric pool and its home: the beginning with one, and the way to another.
#include "src/base/try.h"
#include "src/pool/symmetric/epoch.h"
#include "src/pool/symmetric/open_channel.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

Status SymmetricMode::BeginEpoch(const Status& readiness) {
  Epoch epoch(basis_, blocks_, segments_, collective_, registrar_);
  const uint64_t home_id = COMMPOOL_TRY(epoch.Begin(readiness));
  home_id_.store(home_id, std::memory_order_release);
  losses_.Follow(collective_.channel().lost_ranks());
  ties_.store(Ties::kHome, std::memory_order_release);
  return Status();
}

Status SymmetricMode::LeaveHome() {
  Status status = basis_.CheckOpen();
  if (status.ok()) status = CheckNoLiveBlocks("rehome()");
  if (status.ok()) status = segments_.CheckMayUnmap();
  if (!status.ok()) return status;
  if (!segments_.registrations().empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "it is still registered with " + std::to_string(segments_.registrations().Communicators().size()) +
                      " communicators: abandon() or deregister() every one before rehome()");
  }
  status = SettleAlone();
  // Where home was left together with the other ranks it lives on, and may know that memory still.
  const bool lost = ties_.load(std::memory_order_acquire) == Ties::kAbandoned;
  return status.ok() && lost ? segments_.ReleaseSetAside() : status;
}

Status SymmetricMode::Rehome(ncclComm_t communicator) {
  MutexLock collective(segments_.collective());
  const uint64_t deadline_ms = basis_.deadline_ms();
  const Result<Communicator> home = DescribeCommunicator(basis_.driver, communicator, deadline_ms);
  Status status = home.status();
  if (home.ok() && home->device != basis_.device->device()) {
    status = Status(StatusCode::kInvalidArgument, "the communicator is of device " + std::to_string(home->device));
  }
  if (!status.ok()) return basis_.Named(status.under("rehome"));
  const Status readiness = LeaveHome();
  Result<std::unique_ptr<AgreementChannel>> channel =
      OpenChannel(basis_.driver, basis_.device->context(), basis_.runtime.links, *home, basis_.configuration);
  if (!channel.ok()) return basis_.Named(channel.status().under("rehome"));
  // From here on the pool has no home until all ranks have agreed: where they do not, it is rehomed again or closed.
  ties_.store(Ties::kAbandoned, std::memory_order_release);
  collective_.MoveTo(home->rank, std::move(*channel));
  home_ = *home;
  home_.lost = collective_.channel().lost_ranks();
  home_handle_.store(home->handle, std::memory_order_release);
  return BeginEpoch(readiness);
}

}  // namespace commpool::internal
