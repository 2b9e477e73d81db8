// SegmentStore: what concerns several of its parts, and how a pool gives a communicator up by itself.
#include "src/library/pool/segments/segment_store.h"

#include <algorithm>
#include <chrono>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/pool/shared/memory_observer.h"

namespace commpool::internal {

SegmentStore::SegmentStore(const PoolBasis& basis, const GraphCaptures& captures, BlockStore& blocks,
                           std::unique_ptr<Backing> made, std::shared_ptr<MemoryAccount> account)
    : backing(std::move(made)),
      granularity(std::max(basis.configuration.granularity_bytes, backing->granularity())),
      registrations(basis.driver,
                    basis.configuration.symmetric() ? RegistrationKind::kWindow : RegistrationKind::kLocal,
                    basis.deadline_ms(), basis.runtime.windows, &basis.record),
      room({basis, blocks, *backing, book}, std::move(account), granularity),
      peers({basis, blocks, *backing, book}),
      maker({basis, blocks, *backing, book}, room, peers, registrations),
      kept(basis, blocks),
      exporter({basis, blocks, *backing, book}),
      basis_(basis),
      captures_(captures),
      blocks_(blocks) {}

// What is left was not released in order, such as memory of a symmetric pool that was not closed. It stays until the
// process ends.
SegmentStore::~SegmentStore() {
  for (Segment* segment : book.Pointers()) {
    basis_.runtime.observer.SegmentGone(segment->address());
    segment->Abandon();
  }
  for (NewSegment& segment : book.TakeSetAside(Pinned::kGo)) segment.Abandon();
}

// The same for all segments, because one backing makes them.
commpool_segment_traits SegmentStore::Traits() const {
  const Placement& placement = backing->placement();
  commpool_segment_traits traits = {};
  traits.struct_bytes = sizeof(traits);
  traits.device = placement.device;
  traits.backing = static_cast<commpool_backing>(backing->row().kind);
  traits.location = static_cast<commpool_location>(placement.kind);
  traits.numa_node = placement.numa_node;
  traits.granularity_bytes = granularity;
  backing->AddHandleTraits(traits);
  return traits;
}

// Goes on after a failure: each registration that ends is a segment less that NCCL holds.
Status SegmentStore::Deregister(const std::vector<engine::SegmentIndex>& segments) {
  const ContextGuard current = basis_.MakeCurrent();
  return FirstFailureOf(segments, [&](engine::SegmentIndex index) { return registrations.DeregisterSegment(index); });
}

// In a pool that is neither symmetric nor registered a graph's memory belongs to its part, and never counts as free.
Status SegmentStore::CheckMayUnmap(Unmapped unmapped) const {
  const bool graphs_use_it =
      unmapped == Unmapped::kBlocksToo || basis_.configuration.symmetric() || !registrations.empty();
  return graphs_use_it ? captures_.CheckNoneLive() : Status();
}

// When its registrations end, this rank can no longer reach its peers' windows. So work on them gets until the deadline
// to finish. Work that still runs then waits for the lost rank, until the communicator is aborted: it needs no window.
// Takes the collective lock, so it waits for a collective call of the pool that is under way.
Status SegmentStore::EndRegistrations(ncclComm_t communicator) {
  const Patience patience = basis_.deadline_ms();
  MutexLock collective(basis_.collective);
  if (!registrations.Has(communicator) && !registrations.IsRegisteredWith(communicator)) return Status();
  COMMPOOL_TRY(CheckMayUnmap());
  // Without a segment that NCCL knows, nothing on the device can need the registration.
  if (registrations.IsRegisteredWith(communicator)) {
    const Status finished = blocks_.WaitForDevice(patience);
    if (!finished.ok() && finished.code() != StatusCode::kDeadlineExceeded) return finished;
    if (!finished.ok()) Log(LogLevel::kInfo, basis_.title + ": abandon goes on: " + finished.message());
  }
  const ContextGuard current = basis_.MakeCurrent();
  // The wait for the device took a part of the deadline. NCCL gets the rest, so that the whole call keeps one deadline.
  using std::chrono::milliseconds;
  const auto left = std::chrono::duration_cast<milliseconds>(patience.end - std::chrono::steady_clock::now());
  Status ended = registrations.EndUnfinished(communicator, std::max(left, milliseconds(0)).count());
  KeepFirst(ended, registrations.Remove(communicator));
  // After a failure nobody tries again: the pool drops the handles, and uses this communicator no more.
  if (!ended.ok()) Log(LogLevel::kWarning, basis_.title + ": abandon: " + ended.message());
  registrations.Forget(communicator);
  return Status();
}

// The program says whether the communicator lives. NCCL cannot be asked about one that was destroyed.
Status SegmentStore::AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
  if (life == CommunicatorLife::kAlive) return basis_.Named(EndRegistrations(communicator).under("abandon"));
  basis_.runtime.unanswered.NoteIdle(communicator);
  const uint64_t held = registrations.Forget(communicator);
  if (held == 0) return Status();
  Log(LogLevel::kWarning,
      basis_.title + ": its communicator ended before abandon(), so NCCL " +
          FormatNcclVersion(basis_.driver.nccl.version) + " holds " + FormatBytes(held) +
          " of windows until the process ends: abandon a communicator while it is alive, then abort "
          "it, then close()");
  return Status();
}

// Pool::Abandon calls it as the runtime ends. Frees that come later find no owner of the address.
void SegmentStore::Abandon() {
  for (Segment* segment : book.Pointers()) {
    segment->Abandon();
    basis_.runtime.addresses.Remove(segment->address());
  }
  for (NewSegment& segment : book.TakeSetAside(Pinned::kGo)) segment.Abandon();
  kept.Abandon();
}

}  // namespace commpool::internal
