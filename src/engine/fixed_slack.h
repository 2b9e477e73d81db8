// How much more than it needs a fixed pool may hold, before segments that stand free make way for new ones.
//
// Pure, and guarded by the pool's growth lock. README.md says what each constant is worth.
#ifndef COMMPOOL_SRC_ENGINE_FIXED_SLACK_H_
#define COMMPOOL_SRC_ENGINE_FIXED_SLACK_H_

#include <cstdint>

#include "src/engine/types.h"

namespace commpool::internal::engine {

class FixedSlack {
 public:
  // By how many bytes the pool would hold too much with such a segment: beyond the most that was ever asked for at
  // once, with the request, the slack, and what was reserved by name.
  uint64_t Excess(const Counters& counters, uint64_t requested, uint64_t segment_bytes,
                  uint64_t reserved_by_name) const;
  // A segment is about to be made.
  void CountMade(const Counters& counters, uint64_t segment_bytes);
  // Whether so many segments came where the pool held as much before that it shall hold more instead, and cut segments
  // freely, until its program needs more than ever.
  bool IsCalm() const;

 private:
  uint64_t remade_ = 0;  // since the most requested last rose
  uint64_t most_requested_ = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_FIXED_SLACK_H_
