#include "src/library/engine/block.h"

#include <algorithm>
#include <vector>

namespace commpool::internal::engine {

void AddToUses(Uses& uses, const Use& use) {
  const auto place = std::lower_bound(uses.begin(), uses.end(), use);
  if (place == uses.end() || *place != use) uses.insert(place, use);
}

std::vector<StreamUse> WaitsOf(const Uses& uses, StreamKey stream) {
  if (uses.size() == 1 && uses.front().stream == stream) return {};
  std::vector<StreamUse> waits;
  for (const Use& use : uses) {
    if (use.stream == stream) continue;
    // Ascending: a stream's use without a fence comes before its uses with one.
    const bool covered = !waits.empty() && waits.back().stream == use.stream && waits.back().fence == kNoFence;
    if (!covered) waits.push_back({use.stream, use.fence});
  }
  return waits;
}

}  // namespace commpool::internal::engine
