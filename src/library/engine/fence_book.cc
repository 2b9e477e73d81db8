#include "src/library/engine/fence_book.h"

#include <algorithm>
#include <utility>

#include "src/library/base/check.h"

namespace commpool::internal::engine {

void FenceBook::Add(Fence fence, Moment moment) {
  COMMPOOL_CHECK(fence != kNoFence, "a fence is attached that is none");
  fences_.try_emplace(fence, Entry{moment, {}});
}

void FenceBook::Remove(Fence fence) {
  const auto found = fences_.find(fence);
  if (found == fences_.end()) return;
  COMMPOOL_CHECK(found->second.blocks.empty(), "a fence leaves the book that still guards a block");
  fences_.erase(found);
}

void FenceBook::Link(Block* block) {
  for (const Use& use : block->uses) {
    if (use.fence == kNoFence) continue;
    const auto found = fences_.find(use.fence);
    COMMPOOL_CHECK(found != fences_.end(), "a block waits for a fence that nobody attached");
    found->second.blocks.insert(block);
  }
}

void FenceBook::Unlink(Block* block) {
  for (const Use& use : block->uses) {
    if (use.fence != kNoFence) fences_.at(use.fence).blocks.erase(block);
  }
}

Block* FenceBook::AnyBlock(Fence fence) const {
  const auto found = fences_.find(fence);
  if (found == fences_.end() || found->second.blocks.empty()) return nullptr;
  return *found->second.blocks.begin();
}

std::vector<Fence> FenceBook::Pending(Moment until) const {
  std::vector<std::pair<Moment, Fence>> ordered;
  for (const auto& [fence, entry] : fences_) {
    if (entry.added <= until) ordered.emplace_back(entry.added, fence);
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<Fence> pending;
  pending.reserve(ordered.size());
  for (const auto& [added, fence] : ordered) pending.push_back(fence);
  return pending;
}

}  // namespace commpool::internal::engine
