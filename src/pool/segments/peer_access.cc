// Segments and peers: granting access to every segment of a pool, and taking it back.
#include <optional>
#include <utility>

#include "src/base/try.h"
#include "src/driver/diagnosis.h"
#include "src/pool/segments/segment_store.h"

namespace commpool::internal {

Status SegmentStore::Grant(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  const int own = basis_.device->device();
  for (const int peer : peers) {
    if (peer == own) continue;
    const Capability capability = backing_->CanGrant(peer);
    if (!capability.available) return Status(StatusCode::kNotSupported, basis_.title + ": " + capability.reason);
  }
  ReservedVector<int> joining;
  for (const int peer : peers) {
    if (peer != own && !peers_.contains(peer)) joining.push_back(peer);
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

// What a peer has submitted may use the pool: access ends behind it.
Status SegmentStore::WaitForPeer(int peer) const {
  PrimaryContext context = COMMPOOL_TRY(PrimaryContext::Retain(basis_.driver, peer));
  const std::optional<CUresult> result = SynchroniseWithin(basis_.driver, context.get(), basis_.deadline_ms());
  if (!result) {
    context.Abandon();  // the wait goes on
    return Status(StatusCode::kDeadlineExceeded, basis_.title + ": device " + std::to_string(peer) +
                                                     " is still busy after " + std::to_string(basis_.deadline_ms()) +
                                                     " ms, nothing was changed: a collective waits for a rank?");
  }
  return basis_.Named(
      CheckCuda(basis_.driver, *result, {.call = "cuCtxSynchronize", .device = peer, .purpose = "what a peer does"}));
}

Status SegmentStore::Revoke(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  const Capability capability = backing_->CanRevoke();
  if (!capability.available) {
    return Status(StatusCode::kFailedPrecondition, basis_.title + ": " + capability.reason);
  }
  for (const int peer : peers) {
    if (!peers_.contains(peer)) {
      return Status(StatusCode::kNotFound, basis_.title + " was never granted to device " + std::to_string(peer));
    }
  }
  Status status;
  for (auto peer = peers.begin(); status.ok() && peer != peers.end(); ++peer) {
    status = basis_.device->CheckNotCapturing(*peer);
  }
  if (status.ok()) status = basis_.device->Quiesce(basis_.deadline_ms());
  for (auto peer = peers.begin(); status.ok() && peer != peers.end(); ++peer) status = WaitForPeer(*peer);
  if (!status.ok()) return status;
  for (const int peer : peers) {
    for (Segment* segment : Pointers()) {
      COMMPOOL_TRY(segment->Revoke(peer));
    }
    peers_.erase(peer);
  }
  return Status();
}

}  // namespace commpool::internal
