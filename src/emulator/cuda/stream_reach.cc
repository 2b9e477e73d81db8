#include "src/emulator/cuda/stream_reach.h"

#include <algorithm>

namespace commpool::internal::emulator {

namespace {

// Every operation holds a copy, so streams that are gone drop out: a program may make any number of streams.
constexpr size_t kMostEntries = 64;

}  // namespace

void StreamReach::Set(uint64_t stream, uint64_t sequence) {
  auto place = std::lower_bound(entries_.begin(), entries_.end(), std::pair{stream, uint64_t{0}});
  if (place != entries_.end() && place->first == stream) {
    place->second = std::max(place->second, sequence);
    return;
  }
  entries_.insert(place, {stream, sequence});
  if (entries_.size() <= kMostEntries) return;
  const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  entries_.erase(oldest);
}

void StreamReach::Join(const StreamReach& other) {
  for (const auto& [stream, sequence] : other.entries_) Set(stream, sequence);
}

bool StreamReach::Covers(uint64_t stream, uint64_t sequence) const {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), std::pair{stream, uint64_t{0}});
  return place != entries_.end() && place->first == stream && place->second >= sequence;
}

}  // namespace commpool::internal::emulator
