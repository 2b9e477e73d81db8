// PoolPeers: access is granted to all segments or to none.
#include <algorithm>

#include "src/library/base/try.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

PoolPeers::PoolPeers(const SegmentPart& part)
    : SegmentPart(part),
      made_for_others_(backing_.OthersMayUse()),
      peers_(basis_.configuration.peers.begin(), basis_.configuration.peers.end()) {
  MutexLock lock(mutex_);
  NoteOthersMayUse();
}

// All segments or none: after a failure the peers lose those that they had got.
Status PoolPeers::Grant(const std::vector<int>& peers) {
  // A growth that agrees with other ranks makes its segment for the peers of that moment, long before the book has it.
  MutexLock collective(basis_.collective);
  MutexLock growth(basis_.growth());
  COMMPOOL_TRY(basis_.CheckAwake());  // under the lock, so the pool cannot fall asleep meanwhile
  const std::vector<int> known = Devices();
  std::vector<int> joining;
  for (const int peer : peers) {
    if (peer == basis_.device->device()) continue;
    COMMPOOL_TRY(basis_.Named(backing_.CanGrant(peer)));
    if (std::find(known.begin(), known.end(), peer) == known.end()) joining.push_back(peer);
  }
  const std::vector<Segment*> segments = book_.Pointers();
  for (size_t place = 0; place < segments.size() && !joining.empty(); ++place) {
    Status status = segments[place]->Grant(joining);
    if (status.ok()) continue;
    // The failed one too: some of its peers may have got access.
    for (size_t done = 0; done <= place; ++done) {
      for (const int peer : joining) static_cast<void>(segments[done]->Revoke(peer));
    }
    return status;
  }
  {
    // Last: from here on each new segment is granted to them.
    MutexLock lock(mutex_);
    peers_.insert(joining.begin(), joining.end());
    NoteOthersMayUse();
  }
  // What threads remember of default streams' handles holds no more: caches that end here make them ask again.
  blocks_.TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kAtNextUse));
  return Status();
}

// Everything that can refuse, and every wait, comes first: from the first Revoke on a peer's work would fail.
Status PoolPeers::Revoke(const std::vector<int>& peers) {
  MutexLock collective(basis_.collective);  // as for Grant
  MutexLock growth(basis_.growth());
  COMMPOOL_TRY(basis_.CheckAwake());
  COMMPOOL_TRY(basis_.Named(backing_.CanRevoke()));
  const std::vector<int> known = Devices();
  for (const int peer : peers) {
    if (std::find(known.begin(), known.end(), peer) == known.end()) {
      return NotFound(basis_.title, " was never granted to device ", peer);
    }
  }
  // Work that a peer has submitted may use the pool, so access must not end before it.
  std::set<int> users(peers.begin(), peers.end());
  users.insert(basis_.device->device());
  COMMPOOL_TRY(basis_.Named(basis_.runtime.devices.Quiesce(users, basis_.deadline_ms())));
  for (const int peer : peers) {
    const std::vector<Segment*> segments = book_.Pointers();
    const Status revoked = FirstFailureOf(segments, [&](Segment* segment) { return segment->Revoke(peer); });
    if (!revoked.ok()) {
      // Those that have lost the peer get it again.
      for (Segment* segment : segments) static_cast<void>(segment->Grant(peer));
      return revoked;
    }
    MutexLock lock(mutex_);
    peers_.erase(peer);
    NoteOthersMayUse();
  }
  return Status();
}

void PoolPeers::NoteOthersMayUse() {
  const size_t own = peers_.count(basis_.device->device());
  others_may_use_.store(made_for_others_ || peers_.size() > own, std::memory_order_release);
}

std::vector<int> PoolPeers::Devices() const {
  MutexLock lock(mutex_);
  return {peers_.begin(), peers_.end()};
}

MemoryFacts PoolPeers::Access() const {
  std::map<int, Grants> devices;
  for (const int device : backing_.OpenTo()) devices.emplace(device, Grants::kReadWrite);
  for (const int peer : Devices()) devices.emplace(peer, backing_.grants());
  MemoryFacts facts;
  for (const auto& [device, may] : devices) {
    facts.what += std::to_string(device) + (may == Grants::kRead ? ":read " : " ");
  }
  const bool on_host = backing_.placement().kind == Placement::Kind::kHostNuma;
  facts.what = on_host ? facts.what + "cpu" : facts.what.substr(0, facts.what.size() - 1);
  const char* const why = backing_.row().why_no_revoke;
  facts.why = why == nullptr ? "granted" : why;
  return facts;
}

}  // namespace commpool::internal
