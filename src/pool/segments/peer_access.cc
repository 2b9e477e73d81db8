// Grants peers access to every segment of a pool, and revokes it.

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

Status SegmentStore::Grant(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  COMMPOOL_TRY(basis_.CheckAwake());  // under the lock, so the pool cannot fall asleep meanwhile
  ReservedVector<int> joining;
  for (const int peer : peers) {
    if (peer == basis_.device->device()) continue;
    COMMPOOL_TRY(basis_.Named(backing_->CanGrant(peer)));
    if (!peers_.contains(peer)) joining.push_back(peer);
  }
  const ReservedVector<Segment*> segments = Pointers();
  for (size_t place = 0; place < segments.size() && !joining.empty(); ++place) {
    Status status = segments[place]->Grant(joining);
    if (status.ok()) continue;
    for (size_t done = 0; done <= place; ++done) {
      for (const int peer : joining) static_cast<void>(segments[done]->Revoke(peer));
    }
    return status;
  }
  peers_.insert(joining.begin(), joining.end());
  return Status();
}

// Work that a peer has submitted may use the pool, so access must not end before it.
Status SegmentStore::WaitForPeer(int peer) const {
  const Result<CUresult> result = SynchroniseWithin(basis_.driver, peer, basis_.deadline_ms());
  if (!result.ok()) return basis_.Named(result.status());
  return basis_.Named(
      CheckCuda(basis_.driver, *result, {.call = "cuCtxSynchronize", .device = peer, .purpose = "what a peer does"}));
}

Status SegmentStore::Revoke(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  COMMPOOL_TRY(basis_.CheckAwake());
  COMMPOOL_TRY(basis_.Named(backing_->CanRevoke()));
  for (const int peer : peers) {
    if (!peers_.contains(peer)) {
      return Status(StatusCode::kNotFound, basis_.title + " was never granted to device " + std::to_string(peer));
    }
  }
  for (const int peer : peers) COMMPOOL_TRY(basis_.device->CheckNotCapturing(peer));
  COMMPOOL_TRY(basis_.device->Quiesce(basis_.deadline_ms()));
  for (const int peer : peers) COMMPOOL_TRY(WaitForPeer(peer));
  for (const int peer : peers) {
    for (Segment* segment : Pointers()) COMMPOOL_TRY(segment->Revoke(peer));
    peers_.erase(peer);
  }
  return Status();
}

}  // namespace commpool::internal
