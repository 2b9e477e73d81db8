// BlockTable: finds a block by the address at which it begins, with one probe for any number of blocks. A heap has one;
// every free that reaches the pool asks it.
//
// It is a hash table with linear probing. Erase closes the gap that it makes, so searches do not get longer with time.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/library/base/check.h"
#include "src/library/engine/block.h"

namespace commpool::internal::engine {

class BlockTable {
 public:
  BlockTable() : entries_(kLeastSize) {}

  // REQUIRES: no block begins there.
  void Insert(Address address, Block* block) {
    if (2 * count_ >= mask_) Grow();
    size_t place = HomeOf(address);
    for (; entries_[place].block != nullptr; place = Next(place)) {
      COMMPOOL_CHECK(entries_[place].address != address, "two blocks begin at one address");
    }
    entries_[place] = {address, block};
    ++count_;
  }

  // REQUIRES: a block begins there.
  void Erase(Address address) {
    size_t gap = HomeOf(address);
    for (; entries_[gap].address != address || entries_[gap].block == nullptr; gap = Next(gap)) {
      COMMPOOL_CHECK(entries_[gap].block != nullptr, "no block begins at the address");
    }
    // An entry that was pushed beyond its home moves into the gap, unless its home lies behind the gap.
    for (size_t place = Next(gap); entries_[place].block != nullptr; place = Next(place)) {
      if (((place - HomeOf(entries_[place].address)) & mask_) < ((place - gap) & mask_)) continue;
      entries_[gap] = entries_[place];
      gap = place;
    }
    entries_[gap] = Entry();
    --count_;
  }

  // Null where none begins there.
  Block* Find(Address address) const {
    for (size_t place = HomeOf(address);; place = Next(place)) {
      const Entry& entry = entries_[place];
      if (entry.block == nullptr || entry.address == address) return entry.block;
    }
  }

  uint64_t count() const { return count_; }

 private:
  struct Entry {
    Address address = 0;
    Block* block = nullptr;
  };
  static constexpr size_t kLeastSize = 64;

  // Blocks begin at multiples of large powers of two. The upper bits of the product depend on the whole address.
  size_t HomeOf(Address address) const { return (address * 0x9e3779b97f4a7c15u) >> shift_; }
  size_t Next(size_t place) const { return (place + 1) & mask_; }
  [[gnu::cold]] void Grow() {
    std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    --shift_;
    mask_ = entries_.size() - 1;
    count_ = 0;
    for (const Entry& entry : old) {
      if (entry.block != nullptr) Insert(entry.address, entry.block);
    }
  }

  std::vector<Entry> entries_;  // the size is a power of two; at most half of the entries are used
  size_t mask_ = kLeastSize - 1;
  int shift_ = 58;  // 64 - log2 of the size
  uint64_t count_ = 0;
};

}  // namespace commpool::internal::engine
