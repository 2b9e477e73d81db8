// PlacementHistory: tells whether a search would place a block again where it lies. If so, a block just freed can serve
// the next request of its size without a search.
//
// Placements are numbered. A placement took the best free place of its time. The place stays the best while free memory
// only shrinks, or gets back what later placements took. Where an older block is freed, or memory comes from elsewhere,
// it may not be the best any more for all placements since. The answer depends on the order of calls alone. Not
// thread-safe.
#ifndef COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_
#define COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace commpool::internal::engine {

// The number of a placement; 0: none.
using Placement = uint64_t;

class PlacementHistory {
 public:
  // A search chose a place.
  Placement Note() { return ++last_; }

  // The block of a placement was freed: later placements might choose its place now.
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

  // Free memory came from elsewhere.
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

  // Joins the two oldest and what lies between them: they are so old that little is lost.
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

#endif  // COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_
