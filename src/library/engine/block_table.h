// BlockTable: finds a block by the address at which it begins, with one probe for any number of blocks. A heap has one;
// every free that reaches the pool asks it.
//
// It is a hash table with linear probing. Erase closes the gap that it makes, so searches do not get longer with time.
// Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_TABLE_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

class BlockTable {
 public:
  BlockTable() : entries_(kLeastSize) {}

  // REQUIRES: no block begins there.
  void Insert(Address address, Block* block);
  // REQUIRES: a block begins there.
  void Erase(Address address);

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
  size_t Next(size_t place) const { return (place + 1) & (entries_.size() - 1); }
  void Grow();

  std::vector<Entry> entries_;  // the size is a power of two; at most half of the entries are used
  int shift_ = 58;              // 64 - log2 of the size
  uint64_t count_ = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_BLOCK_TABLE_H_
