// Eras: parts of a recording without a gap. After a gap a chapter retells what lives; what it does not name is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "src/report/page_entries.h"

namespace commpool::internal::report {

// When a thing that lives was made, and in which era it was last heard of.
struct Life {
  int64_t from = 0;
  size_t era = 0;
};

class Eras {
 public:
  // Of each entry.
  void Reach(int64_t time) {
    if (time > last_) last_ = time;
  }
  // Entries are missing here: the next chapter begins an era.
  void Lose() { lost_ = true; }
  // Returns whether a new era begins.
  bool BeginChapter(Before before) {
    const bool gap = before == Before::kGap || lost_;
    lost_ = false;
    if (gap) ends_.push_back(last_);
    return gap;
  }

  size_t now() const { return ends_.size(); }
  int64_t last() const { return last_; }
  bool Knows(const Life& life) const { return life.era == now(); }
  // When a thing ended that lives in no later era. REQUIRES: !Knows(life).
  int64_t EndOf(const Life& life) const { return ends_[life.era]; }
  Life Begin(int64_t time, uint64_t age) const { return {time - TimeOf(age), now()}; }
  // Whether an entry retells the thing; otherwise its end is missing.
  bool Retells(const Life& life, int64_t time, uint64_t age) const {
    constexpr int64_t kNear = 1'000'000;  // ns: a chapter's ages are as old as the chapter's beginning
    const int64_t apart = std::abs(time - TimeOf(age) - life.from);
    return apart == 0 || (age > 0 && (Knows(life) || apart <= kNear));
  }

 private:
  std::vector<int64_t> ends_;
  int64_t last_ = 0;
  bool lost_ = false;
};

}  // namespace commpool::internal::report
