#include "src/library/recording/live_state.h"

#include <algorithm>

namespace commpool::internal::recording {

// What is left of a segment before and behind the range stays, with the segment's time.
void LiveState::Apply(const SegmentGone& gone, uint64_t) {
  const uint64_t end = gone.address + gone.bytes;
  auto next = segments_.upper_bound(gone.address);
  if (next != segments_.begin()) --next;
  while (next != segments_.end() && next->first < end) {
    const Dated<SegmentMade> was = next->second;
    const uint64_t was_end = was.entry.address + was.entry.bytes;
    if (was_end <= gone.address) {
      ++next;
      continue;
    }
    next = segments_.erase(next);
    const auto keep = [&](uint64_t from, uint64_t to) {
      if (from >= to) return;
      Dated<SegmentMade> rest = was;
      rest.entry.address = from;
      rest.entry.bytes = to - from;
      segments_.emplace(from, rest);
    };
    keep(was.entry.address, std::min(gone.address, was_end));
    keep(std::max(end, was.entry.address), was_end);
  }
}

}  // namespace commpool::internal::recording
