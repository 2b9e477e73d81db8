#include "src/engine/block.h"

#include <algorithm>

namespace commpool::internal::engine {

bool OwesFence(const Block& block) {
  return std::any_of(block.uses.begin(), block.uses.end(), [](const Use& use) { return use.owed(); });
}

bool IsPending(const Block& block) {
  if (block.state == BlockState::kLive || IsHole(block)) return false;
  if (block.state != BlockState::kFree) return true;
  return std::any_of(block.uses.begin(), block.uses.end(),
                     [](const Use& use) { return use.owed() || use.fence != kNoFence; });
}

void AddUse(std::vector<Use>& uses, const Use& use) {
  const auto place = std::lower_bound(uses.begin(), uses.end(), use);
  if (place == uses.end() || *place != use) uses.insert(place, use);
}

void UniteUses(std::vector<Use>& uses, const std::vector<Use>& others) {
  for (const Use& use : others) AddUse(uses, use);
}

std::vector<StreamUse> WaitsOf(const std::vector<Use>& uses, StreamKey stream) {
  std::vector<StreamUse> waits;
  for (const Use& use : uses) {
    if (use.stream == stream) continue;
    // Ascending: a stream's use without a fence stands before those with one.
    const bool covered = !waits.empty() && waits.back().stream == use.stream && waits.back().fence == kNoFence;
    if (!covered) waits.push_back({use.stream, use.fence});
  }
  return waits;
}

}  // namespace commpool::internal::engine
