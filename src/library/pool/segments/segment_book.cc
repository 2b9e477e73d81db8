// SegmentBook: the segments of a pool, and what is set aside.
#include "src/library/base/check.h"
#include "src/library/pool/segments/segment_store.h"

namespace commpool::internal {

// An assertion and no error: the engine hands out each number once.
void SegmentBook::Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment) {
  MutexLock lock(mutex_);
  const bool added = segments_.emplace(index, std::move(segment)).second;
  COMMPOOL_CHECK(added, "a segment's number is used twice");
}

std::unique_ptr<Segment> SegmentBook::Take(engine::SegmentIndex index) {
  MutexLock lock(mutex_);
  auto node = segments_.extract(index);
  COMMPOOL_CHECK(!node.empty(), "a segment is taken twice");
  return std::move(node.mapped());
}

// The reference outlives the lock, so the caller must hold `growth`.
Segment& SegmentBook::Get(engine::SegmentIndex index) const {
  MutexLock lock(mutex_);
  const auto found = segments_.find(index);
  COMMPOOL_CHECK(found != segments_.end(), "a segment is missing from its pool");
  return *found->second;
}

// The map is ordered by number. The list may be out of date unless the caller holds `growth`.
std::vector<SegmentToRegister> SegmentBook::List() const {
  std::vector<SegmentToRegister> list;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) list.push_back({index, segment->address(), segment->bytes()});
  return list;
}

std::vector<engine::SegmentIndex> SegmentBook::Indexes() const {
  std::vector<engine::SegmentIndex> indexes;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) indexes.push_back(index);
  return indexes;
}

// A copy, so that the driver is called without the lock. Callers hold `growth` where a segment could go meanwhile.
std::vector<Segment*> SegmentBook::Pointers() const {
  std::vector<Segment*> pointers;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) pointers.push_back(segment.get());
  return pointers;
}

uint64_t SegmentBook::count() const {
  MutexLock lock(mutex_);
  return segments_.size();
}

// Its room stays taken: the memory is there.
void SegmentBook::SetAside(NewSegments segments, Aside how) {
  for (NewSegment& segment : segments) {
    if (how != Aside::kRefused) segment->KeepAddresses();
  }
  MutexLock lock(mutex_);
  NewSegments& others = how == Aside::kPinned ? pinned_aside_ : set_aside_;
  others.splice(others.end(), segments);
}

// The caller releases or abandons them without the lock.
NewSegments SegmentBook::TakeSetAside(Pinned pinned) {
  MutexLock lock(mutex_);
  NewSegments taken = std::exchange(set_aside_, {});
  if (pinned == Pinned::kGo) taken.splice(taken.end(), pinned_aside_);
  return taken;
}

}  // namespace commpool::internal
