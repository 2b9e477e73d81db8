// Ordered sets of blocks that recycle their nodes: in steady state they allocate no host memory.
//
// Not thread-safe.
#ifndef COMMPOOL_SRC_ENGINE_BLOCK_SET_H_
#define COMMPOOL_SRC_ENGINE_BLOCK_SET_H_

#include <set>
#include <utility>
#include <vector>

#include "src/engine/block.h"

namespace commpool::internal::engine {

// Order by place in one segment; comparable with an offset.
struct ByOffset {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const { return a->offset < b->offset; }
  bool operator()(const Block* a, uint64_t offset) const { return a->offset < offset; }
  bool operator()(uint64_t offset, const Block* b) const { return offset < b->offset; }
};

// Order by size, then by place, never by address: every rank of a symmetric pool finds the same block. Comparable with
// a size. Defined in free_index.cc.
struct BySize {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const;
  bool operator()(const Block* a, uint64_t bytes) const { return a->bytes < bytes; }
  bool operator()(uint64_t bytes, const Block* b) const { return bytes < b->bytes; }
};

using BlockNode = std::set<Block*>::node_type;
using SpareNodes = std::vector<BlockNode>;

template <typename Order>
using BlockSet = std::set<Block*, Order>;

template <typename Order>
void InsertBlock(BlockSet<Order>& set, Block* block, SpareNodes& spare) {
  if (spare.empty()) {
    set.insert(block);
    return;
  }
  BlockNode node = std::move(spare.back());
  spare.pop_back();
  node.value() = block;
  set.insert(std::move(node));
}

// Whether the block was there.
template <typename Order>
bool EraseBlock(BlockSet<Order>& set, Block* block, SpareNodes& spare) {
  BlockNode node = set.extract(block);
  if (node.empty()) return false;
  spare.push_back(std::move(node));
  return true;
}

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_BLOCK_SET_H_
