// BlockArena: owns the Block structs of one heap. They never move, so blocks point to each other; the arena gives a
// recycled one out again. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_

#include <deque>
#include <utility>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

class BlockArena {
 public:
  // A block that nobody uses. Its place, neighbours, uses, part, stream and moment are anything: set them.
  Block* Make() {
    if (spare_ == nullptr) return &blocks_.emplace_back();
    return std::exchange(spare_, spare_->next);
  }

  // REQUIRES: the block was free or a hole, so it has no marks and nothing closes it.
  void Recycle(Block* block) { block->next = std::exchange(spare_, block); }

 private:
  std::deque<Block> blocks_;
  Block* spare_ = nullptr;  // a list
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_
