// FenceBook: knows which freed blocks wait for which fence, so that a passed fence finds its blocks at once. The heap
// owns it and keeps it up to date; the engine adds fences and removes those that passed.
//
// A fence stays in the book until it passes, even when its last block has been handed out: the pool then recycles its
// event. Not thread-safe.
#pragma once

#include <map>
#include <set>
#include <vector>

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

  static constexpr Moment kAllTime = ~Moment{0};

  void Add(Fence fence, Moment moment);
  // REQUIRES: it guards no block.
  void Remove(Fence fence);
  bool empty() const { return fences_.empty(); }

  // Adds or removes the block under every fence among its uses. REQUIRES: these are in the book.
  void Link(Block* block);
  void Unlink(Block* block);

  // A block that the fence guards; null where there is none left.
  Block* AnyBlock(Fence fence) const;

  // Oldest first: all of them, or those added up to the moment.
  std::vector<Fence> Pending(Moment until = kAllTime) const;
  const std::map<Fence, Entry>& entries() const { return fences_; }

 private:
  std::map<Fence, Entry> fences_;
};

}  // namespace commpool::internal::engine
