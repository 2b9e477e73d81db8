// FenceBook: knows which freed blocks wait for which fence, so that a passed fence finds its blocks at once. The heap
// owns it and keeps it up to date; the engine adds fences and removes those that passed.
//
// A fence stays in the book until it passes, even when its last block has been handed out: the pool then recycles its
// event. Not thread-safe.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "src/library/base/check.h"
#include "src/library/engine/block.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

class FenceBook {
 public:
  // What the book knows of one fence.
  struct Entry {
    Moment added = 0;
    std::set<Block*> blocks;
  };

  void Add(Fence fence, Moment moment) {
    COMMPOOL_CHECK(fence != kNoFence, "a fence is attached that is none");
    fences_.try_emplace(fence, Entry{moment, {}});
  }
  // REQUIRES: AnyBlock(fence) is null.
  void Remove(Fence fence) { fences_.erase(fence); }
  bool empty() const { return fences_.empty(); }

  // Adds or removes the block under every fence among its uses. REQUIRES: these are in the book.
  void Link(Block* block) {
    for (const Use& use : block->uses) {
      if (use.fence == kNoFence) continue;
      const auto found = fences_.find(use.fence);
      COMMPOOL_CHECK(found != fences_.end(), "a block waits for a fence that nobody attached");
      found->second.blocks.insert(block);
    }
  }
  void Unlink(Block* block) {
    for (const Use& use : block->uses) {
      if (use.fence != kNoFence) fences_.at(use.fence).blocks.erase(block);
    }
  }

  // A block that the fence guards; null where there is none left.
  Block* AnyBlock(Fence fence) const {
    const auto found = fences_.find(fence);
    return found == fences_.end() || found->second.blocks.empty() ? nullptr : *found->second.blocks.begin();
  }

  // Oldest first: all of them, or those added up to the moment.
  std::vector<Fence> Pending(Moment until = kNoMoment) const {
    std::vector<std::pair<Moment, Fence>> ordered;
    for (const auto& [fence, entry] : fences_) {
      if (entry.added <= until) ordered.emplace_back(entry.added, fence);
    }
    std::sort(ordered.begin(), ordered.end());
    std::vector<Fence> pending;
    for (const auto& [added, fence] : ordered) pending.push_back(fence);
    return pending;
  }
  const std::map<Fence, Entry>& entries() const { return fences_; }

 private:
  std::map<Fence, Entry> fences_;
};

}  // namespace commpool::internal::engine
