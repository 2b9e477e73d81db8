// FreeBlocks: free blocks in one of two orders. By size, then by place: the first that is large enough is the best fit.
// By place: it is the first fit. A place is a segment's index and an offset and never an address, so that every rank of
// a symmetric pool finds the same block. The free index has one for each of its lists.
//
// The blocks form search trees whose links lie in the blocks, so no change allocates. By size there is a tree for each
// bin, four bins for each doubling, and bits tell which bins have blocks: a look mostly touches one or two blocks. By
// place there is one tree, in which no block is larger than the one above it: a search goes straight down to the first
// that is large enough (Stephenson's fast fits). Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "src/library/base/check.h"
#include "src/library/engine/block.h"

namespace commpool::internal::engine {

enum class Order : uint8_t { kBySize, kByPlace };

// A block's size, segment and offset must not change while it is here.
class FreeBlocks {
 public:
  explicit FreeBlocks(Order order) : order_(order) {}

  bool empty() const { return used_ == decltype(used_){}; }

  // REQUIRES: the block is not here.
  void Insert(Block* block) {
    const size_t bin = BinOf(block->bytes);
    block->bin = static_cast<uint8_t>(bin);
    used_[bin / 64] |= uint64_t{1} << bin % 64;
    order_ == Order::kBySize ? InsertBelow<BySize>(&roots_[bin], block) : InsertBelow<ByPlace>(&roots_[bin], block);
  }

  // Whether the block was here.
  bool Erase(Block* block) {
    if (block->link == nullptr) return false;
    order_ == Order::kBySize ? Join<BySize>(block) : Join<ByPlace>(block);
    const size_t bin = block->bin;
    if (roots_[bin] == nullptr) used_[bin / 64] &= ~(uint64_t{1} << bin % 64);
    return true;
  }

  // The block leaves, and a part of it comes, which may be the same struct. By place it is never above where the block
  // was. REQUIRES: the block is here.
  void Shrink(Block* block, Block* part) {
    Block** const link = block->link;
    COMMPOOL_CHECK(link != nullptr, "a free block is missing from its list");
    if (order_ == Order::kBySize) {
      Erase(block);
      return Insert(part);
    }
    Join<ByPlace>(block);
    part->bin = block->bin;
    InsertBelow<ByPlace>(link, part);
  }

  // The first block that has so many bytes; null where none has.
  Block* FirstFrom(uint64_t bytes) const {
    Block* first = nullptr;
    if (order_ == Order::kByPlace) {
      for (Block* at = roots_[0]; at != nullptr && at->bytes >= bytes; at = at->lesser) first = at;
      return first;
    }
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

  // Whether the block comes first of the two.
  bool IsBefore(const Block& a, const Block& b) const {
    return order_ == Order::kBySize ? BySize::IsBefore(a, b) : ByPlace::IsBefore(a, b);
  }

 private:
  static constexpr size_t kBins = 256;

  // The weights are scattered, so a tree of equals is about as deep as a balanced one. Where the structs lie decides
  // its shape, and never its order.
  static uint64_t WeightOf(const Block& block) { return reinterpret_cast<uintptr_t>(&block) * 0x9e3779b97f4a7c15u; }

  struct ByPlace {
    static bool IsBefore(const Block& a, const Block& b) {
      return a.segment != b.segment ? a.segment->index < b.segment->index : a.offset < b.offset;
    }
    static bool IsAbove(const Block& a, const Block& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : WeightOf(a) > WeightOf(b);
    }
  };
  struct BySize {
    static bool IsBefore(const Block& a, const Block& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : ByPlace::IsBefore(a, b);
    }
    static bool IsAbove(const Block& a, const Block& b) { return WeightOf(a) > WeightOf(b); }
  };

  // By size: the place of the highest bit, and the two bits below it. They begin a floating-point number.
  size_t BinOf(uint64_t bytes) const {
    if (order_ == Order::kByPlace) return 0;
    return ((std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(bytes | 1))) >> 50) - (1023 << 2)) &
           (kBins - 1);
  }
  // The first bin that has blocks, this one or a later one; kBins where none has.
  size_t BinFrom(size_t bin) const {
    if (bin >= kBins) return kBins;
    size_t word = bin / 64;
    for (uint64_t bits = used_[word] & ~uint64_t{0} << bin % 64;; bits = used_[word]) {
      if (bits != 0) return 64 * word + static_cast<size_t>(std::countr_zero(bits));
      if (++word == used_.size()) return kBins;
    }
  }

  template <typename By>
  static Block** Towards(Block* at, const Block& block) {
    return By::IsBefore(block, *at) ? &at->lesser : &at->greater;
  }

  static void Hang(Block** link, Block* block) {
    *link = block;
    block->link = link;
  }

  template <typename By>
  static void InsertBelow(Block** link, Block* block) {
    while (*link != nullptr && By::IsAbove(**link, *block)) link = Towards<By>(*link, *block);
    // What was below this place goes to the two sides of the block.
    Block* rest = *link;
    Hang(link, block);
    Block** lesser = &block->lesser;
    Block** greater = &block->greater;
    while (rest != nullptr) {
      Block**& side = By::IsBefore(*rest, *block) ? lesser : greater;
      Hang(side, rest);
      side = Towards<By>(rest, *block);
      rest = *side;
    }
    *lesser = nullptr;
    *greater = nullptr;
  }

  // Takes the block out and joins its two sides in its place.
  template <typename By>
  static void Join(Block* block) {
    Block** link = std::exchange(block->link, nullptr);
    Block* lesser = block->lesser;
    Block* greater = block->greater;
    while (lesser != nullptr && greater != nullptr) {
      const bool low = By::IsAbove(*lesser, *greater);
      Hang(link, low ? lesser : greater);
      link = low ? &lesser->greater : &greater->lesser;
      (low ? lesser : greater) = *link;
    }
    *link = lesser != nullptr ? lesser : greater;
    if (*link != nullptr) (*link)->link = link;
  }

  template <typename Visit>
  void VisitTree(Block* at, uint64_t bytes, Visit& visit) const {
    for (; at != nullptr; at = at->greater) {
      if (at->bytes >= bytes) {
        VisitTree(at->lesser, bytes, visit);
        visit(at);
      } else if (order_ == Order::kByPlace) {
        return;  // none below it is larger
      }
    }
  }

  const Order order_;
  std::array<uint64_t, kBins / 64> used_ = {};  // a bit for each bin
  std::array<Block*, kBins> roots_ = {};        // by place: the first alone
};

}  // namespace commpool::internal::engine
