// How a pool gives up a communicator on this rank alone: after a loss no call reaches every rank.
//
// The order is: abandon every communicator while it is alive, abort them, then close() or rehome(). NCCL ends a
// registration without the other ranks, but not once its communicator was aborted: then it keeps the windows' memory.
#include <algorithm>
#include <chrono>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/base/try.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

// Does not call NCCL: the program says that the communicator has ended.
void SegmentStore::ForgetCommunicator(ncclComm_t communicator) {
  const uint64_t held = registrations_.Forget(communicator);
  if (held == 0) return;
  Log(LogLevel::kWarning,
      basis_.title + ": its communicator ended before abandon(), so NCCL " +
          FormatNcclVersion(basis_.driver.nccl.version) + " holds " + FormatBytes(held) +
          " of windows until the process ends: abandon a communicator while it is alive, then abort "
          "it, then close()");
}

// When its registrations end, this rank can no longer reach its peers' windows. So work on them gets until the deadline
// to finish. Work that still runs then waits for the lost rank, until the communicator is aborted: it needs no window.
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
  // The wait for the device took a part of the deadline. NCCL gets the rest, so that the whole call keeps one deadline.
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  const uint64_t spent_ms = static_cast<uint64_t>(waited.count());
  const uint64_t deadline_ms = basis_.deadline_ms();
  Status ended = registrations_.EndUnfinished(communicator, deadline_ms - std::min(deadline_ms, spent_ms));
  const Status removed = registrations_.Remove(communicator);
  if (ended.ok()) ended = removed;
  // After a failure nobody tries again: the pool drops the handles, and uses this communicator no more.
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
