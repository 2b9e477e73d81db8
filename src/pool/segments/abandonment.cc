// How a pool gives up a communicator on this rank alone: after a loss no call reaches every rank any more.
//
// The order is: abandon every communicator while it is alive, abort them, then close() or rehome(). NCCL ends a
// registration without any other rank, but not after its communicator was aborted: then it keeps the memory of windows.
#include <algorithm>
#include <chrono>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/base/try.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

// NCCL is not told: the program says that the communicator has ended.
void SegmentStore::ForgetCommunicator(ncclComm_t communicator) {
  const uint64_t held = registrations_.Forget(communicator);
  if (held == 0) return;
  Log(LogLevel::kWarning,
      basis_.title + ": its communicator ended before abandon(), so NCCL " +
          FormatNcclVersion(basis_.driver.nccl.version) + " holds " + FormatBytes(held) +
          " of windows until the process ends: abandon a communicator while it is alive, then abort "
          "it, then close()");
}

// A registration's end takes this rank's way to its peers' windows, so their users get the deadline to finish. What
// runs on then waits for the lost rank until the communicator is aborted, and has no use for them.
Status SegmentStore::LetTheDeviceFinish() {
  const Status status = blocks_.WaitForDevice();
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  Log(LogLevel::kInfo, basis_.title + ": abandon goes on: " + status.message());
  return Status();
}

Status SegmentStore::EndRegistrations(ncclComm_t communicator) {
  const auto began = std::chrono::steady_clock::now();
  MutexLock collective(collective_);
  if (!registrations_.Has(communicator)) return Status();
  COMMPOOL_TRY(CheckMayUnmap());
  if (registrations_.IsRegisteredWith(communicator)) COMMPOOL_TRY(LetTheDeviceFinish());
  const ContextGuard current = basis_.MakeCurrent();
  // What is left of the deadline after the device: the call as a whole keeps to one.
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  const uint64_t spent_ms = static_cast<uint64_t>(waited.count());
  const uint64_t deadline_ms = basis_.deadline_ms();
  Status ended = registrations_.EndUnfinished(communicator, deadline_ms - std::min(deadline_ms, spent_ms));
  const Status removed = registrations_.Remove(communicator);
  if (ended.ok()) ended = removed;
  // Its handles are dropped all the same, and there is no second try: the pool is done with it.
  if (!ended.ok()) Log(LogLevel::kWarning, basis_.title + ": abandon: " + ended.message());
  return Status();
}

Status SegmentStore::AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
  if (life == CommunicatorLife::kAlive) return basis_.Named(EndRegistrations(communicator).under("abandon"));
  basis_.runtime.unanswered.NoteIdle(communicator);
  ForgetCommunicator(communicator);
  return Status();
}

}  // namespace commpool::internal
