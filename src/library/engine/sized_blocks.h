// SizedBlocks: free blocks in the order of the best fit: by size, then by segment and offset. Never by address, so that
// every rank of a symmetric pool finds the same block. The free index has one for each of its lists.
//
// Sizes fall into bins, four for each doubling, and bits tell which bins have blocks. So a change or a search mostly
// looks at one or two blocks. The blocks of one bin are a search tree, because a program may have thousands of free
// blocks of one size. Its links lie in the blocks, so no change allocates. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_SIZED_BLOCKS_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_SIZED_BLOCKS_H_

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "src/library/engine/heap_segment.h"

namespace commpool::internal::engine {

// A block's size, segment and offset must not change while it is here.
class SizedBlocks {
 public:
  bool empty() const { return BinFrom(0) == kBins; }

  // REQUIRES: the block is not here.
  void Insert(Block* block) {
    const size_t bin = BinOf(block->bytes);
    used_[bin / 64] |= uint64_t{1} << bin % 64;
    Block** link = &roots_[bin];
    while (*link != nullptr && WeightOf(*link) > WeightOf(block)) link = Towards(*link, *block);
    // What was below this place goes to the two sides of the block.
    Block** lesser = &block->lesser;
    Block** greater = &block->greater;
    for (Block* rest = std::exchange(*link, block); rest != nullptr;) {
      Block**& side = IsLess(*rest, *block) ? lesser : greater;
      *side = rest;
      side = Towards(rest, *block);
      rest = *side;
    }
    *lesser = nullptr;
    *greater = nullptr;
  }

  // Whether the block was here.
  bool Erase(Block* block) {
    const size_t bin = BinOf(block->bytes);
    Block** link = &roots_[bin];
    while (*link != nullptr && *link != block) link = Towards(*link, *block);
    if (*link == nullptr) return false;
    // Joins its two sides.
    Block* lesser = block->lesser;
    Block* greater = block->greater;
    while (lesser != nullptr && greater != nullptr) {
      const bool low = WeightOf(lesser) > WeightOf(greater);
      *link = low ? lesser : greater;
      link = low ? &lesser->greater : &greater->lesser;
      (low ? lesser : greater) = *link;
    }
    *link = lesser != nullptr ? lesser : greater;
    if (roots_[bin] == nullptr) used_[bin / 64] &= ~(uint64_t{1} << bin % 64);
    return true;
  }

  bool Contains(const Block& block) const {
    const Block* at = roots_[BinOf(block.bytes)];
    while (at != nullptr && at != &block) at = IsLess(block, *at) ? at->lesser : at->greater;
    return at != nullptr;
  }

  // The first block that has so many bytes; null where none has.
  Block* FirstFrom(uint64_t bytes) const {
    Block* first = nullptr;
    for (size_t bin = BinFrom(BinOf(bytes)); bin < kBins && first == nullptr; bin = BinFrom(bin + 1)) {
      for (Block* at = roots_[bin]; at != nullptr;) {
        if (at->bytes >= bytes) first = at;
        at = at->bytes >= bytes ? at->lesser : at->greater;
      }
    }
    return first;
  }

  // Visits every block that has so many bytes.
  template <typename Visit>
  void VisitFrom(uint64_t bytes, Visit visit) const {
    for (size_t bin = BinFrom(BinOf(bytes)); bin < kBins; bin = BinFrom(bin + 1)) VisitTree(roots_[bin], bytes, visit);
  }

  static bool IsLess(const Block& a, const Block& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : IsBefore(a, b); }
  // By place alone.
  static bool IsBefore(const Block& a, const Block& b) {
    return a.segment != b.segment ? a.segment->index < b.segment->index : a.offset < b.offset;
  }

 private:
  static constexpr size_t kBins = 256;

  // The place of the highest bit, and the two bits below it.
  static size_t BinOf(uint64_t bytes) {
    const int zeros = std::countl_zero(bytes | 1);
    return static_cast<size_t>(63 - zeros) << 2 | (bytes << zeros >> 61 & 3);
  }
  // The first bin that has blocks, this one or a later one; kBins where none has.
  size_t BinFrom(size_t bin) const {
    for (size_t word = bin / 64; word < used_.size(); bin = 64 * ++word) {
      const uint64_t bits = used_[word] >> bin % 64;
      if (bits != 0) return bin + static_cast<size_t>(std::countr_zero(bits));
    }
    return kBins;
  }

  // A node weighs more than those below it. The weights are scattered, so the tree is about as deep as a balanced one.
  // Where the structs lie decides its shape, and never its order.
  static uint64_t WeightOf(const Block* block) { return reinterpret_cast<uintptr_t>(block) * 0x9e3779b97f4a7c15u; }
  static Block** Towards(Block* at, const Block& block) { return IsLess(block, *at) ? &at->lesser : &at->greater; }

  template <typename Visit>
  static void VisitTree(Block* at, uint64_t bytes, Visit& visit) {
    for (; at != nullptr; at = at->greater) {
      if (at->bytes < bytes) continue;
      VisitTree(at->lesser, bytes, visit);
      visit(at);
    }
  }

  std::array<uint64_t, kBins / 64> used_ = {};  // a bit for each bin
  std::array<Block*, kBins> roots_ = {};
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_SIZED_BLOCKS_H_
