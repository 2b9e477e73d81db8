// RestingBlocks: the last few large blocks that were freed. The heap, which owns the list, has not merged them yet,
// because the next request is often for one of these sizes.
//
// A request of the same size takes the newest such block. Any other request merges all of them first, and
// searches all free memory. Which blocks rest and which are taken depends on the order of calls alone. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_RESTING_BLOCKS_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_RESTING_BLOCKS_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

class RestingBlocks {
 public:
  // With more blocks a walk through the list would take longer than a search.
  static constexpr size_t kMost = 16;

  // REQUIRES: most <= kMost. With 0 no block rests.
  explicit RestingBlocks(size_t most) : most_(most) {}

  bool enabled() const { return most_ > 0; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == most_; }
  // REQUIRES: not empty.
  Block* oldest() const { return blocks_[0]; }
  // REQUIRES: not full.
  void Add(Block* block) { blocks_[count_++] = block; }

  // Takes the newest block that the predicate accepts; null where it accepts none.
  template <typename Accepts>
  Block* TakeLast(Accepts accepts) {
    for (size_t place = count_; place-- > 0;) {
      Block* const block = blocks_[place];
      if (!accepts(*block)) continue;
      RemoveAt(place);
      return block;
    }
    return nullptr;
  }

  // REQUIRES: the block rests.
  void Remove(const Block* block) { RemoveAt(static_cast<size_t>(std::find(begin(), end(), block) - begin())); }

  Block* const* begin() const { return blocks_.data(); }
  Block* const* end() const { return blocks_.data() + count_; }

 private:
  void RemoveAt(size_t place) {
    std::copy(blocks_.begin() + static_cast<long>(place) + 1, blocks_.begin() + static_cast<long>(count_),
              blocks_.begin() + static_cast<long>(place));
    --count_;
  }

  size_t most_;
  size_t count_ = 0;
  std::array<Block*, kMost> blocks_ = {};  // the oldest first
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_RESTING_BLOCKS_H_
