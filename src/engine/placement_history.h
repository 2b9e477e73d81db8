// Whether a search would place a block again where it lies: so that a block just freed can serve the next request of
// its size without one.
//
// Placements are numbered. A block's place was the best of the free memory at its placement, and stays so while free
// memory has only lost, or got back what younger placements had taken. A free of an older block, or memory that came
// from elsewhere, ends that for all that were placed since. The answer depends on the order of calls alone. Not
// thread-safe.
#ifndef COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_
#define COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace commpool::internal::engine {

// The number of a placement; 0 is none.
using Placement = uint64_t;

class PlacementHistory {
 public:
  // A search chose a place.
  Placement Note() { return ++last_; }

  // The block of a placement was freed: what was placed after it might find its place now.
  void NoteFree(Placement freed) {
    // The new range ends behind all others, so those that it touches are the last ones.
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

  // The two oldest become one, with what lies between them: long ago, so that little is lost.
  void JoinOldest() {
    outdated_[1].first = outdated_[0].first;
    std::copy(outdated_.begin() + 1, outdated_.end(), outdated_.begin());
    --count_;
  }

  Placement last_ = 0;
  size_t count_ = 0;
  std::array<Range, kMost> outdated_;  // ascending, apart from each other
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_PLACEMENT_HISTORY_H_
