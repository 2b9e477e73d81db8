// PlacementHistory: tells whether a search would place a block again where it lies. If so, a block just freed can serve
// the next request of its size without a search. The heap has one for each space, and tells it of every search and
// free.
//
// Placements are numbered. A placement took the best free place of its time. That place stays the best while free
// memory only shrinks, or gets back what later placements took. But when an older block is freed, or memory comes from
// elsewhere, a better place may exist for every placement since: these are outdated. The answer depends on the order of
// calls alone. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_PLACEMENT_HISTORY_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_PLACEMENT_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace commpool::internal::engine {

// The number of a placement; 0: none.
using Placement = uint64_t;

class PlacementHistory {
 public:
  // Call it when a search has chosen a place; returns the placement's number.
  Placement Note() { return ++last_; }

  // Call it when the block of a placement is freed: later placements might choose its place now.
  void NoteFree(Placement freed) {
    // The new range ends behind all others, so it touches only the last ones.
    while (count_ > 0 && outdated_[count_ - 1].first >= freed) --count_;
    if (freed == last_) return;
    if (count_ > 0 && outdated_[count_ - 1].last >= freed) {
      outdated_[count_ - 1].last = last_;
      return;
    }
    if (count_ == kMost) JoinOldest();
    outdated_[count_++] = {freed, last_};
  }

  // Call it when free memory comes from elsewhere.
  void NoteOther() { NoteFree(0); }

  bool IsCurrent(Placement placement) const {
    for (size_t place = count_; place-- > 0;) {
      if (placement > outdated_[place].last) return true;
      if (placement > outdated_[place].first) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kMost = 32;

  // The placements after `first`, up to `last`, are outdated.
  struct Range {
    Placement first = 0;
    Placement last = 0;
  };

  // Makes one range of the two oldest, so that another fits. The placements between them count as outdated too, which
  // costs a search at most.
  void JoinOldest() {
    outdated_[1].first = outdated_[0].first;
    std::copy(outdated_.begin() + 1, outdated_.end(), outdated_.begin());
    --count_;
  }

  Placement last_ = 0;
  size_t count_ = 0;
  std::array<Range, kMost> outdated_;  // ascending, with gaps between them
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_PLACEMENT_HISTORY_H_
