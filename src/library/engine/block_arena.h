// BlockArena: owns the Block structs of one heap. They never move, so blocks point to each other; the arena gives a
// recycled one out again. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_

#include <deque>
#include <utility>
#include <vector>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

class BlockArena {
 public:
  Block* Make() {
    if (spare_.empty()) return &blocks_.emplace_back();
    Block* block = spare_.back();
    spare_.pop_back();
    return block;
  }

  // Keeps the memory of its list of uses for the next block, which then need not allocate.
  void Recycle(Block* block) {
    Uses uses = std::move(block->uses);
    uses.clear();
    *block = Block();
    block->uses = std::move(uses);
    spare_.push_back(block);
  }

 private:
  std::deque<Block> blocks_;
  std::vector<Block*> spare_;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_ARENA_H_
