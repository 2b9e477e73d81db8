// SortedBlocks: blocks in the order of a key, in a list of short arrays. Arrays touch less memory than a tree, whose
// nodes lie apart. Heap segments use it.
//
// A search halves the list of arrays, then one array. A change moves the entries of one array. Keys lie beside the
// pointers, so a search touches no block. Not thread-safe.
#ifndef COMMPOOL_SRC_LIBRARY_ENGINE_SORTED_BLOCKS_H_
#define COMMPOOL_SRC_LIBRARY_ENGINE_SORTED_BLOCKS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/library/engine/block.h"

namespace commpool::internal::engine {

// Key: a value with operator<, different for each block.
template <typename Key>
class SortedBlocks {
 public:
  struct Entry {
    Key key;
    Block* block = nullptr;
  };
  static constexpr size_t kMost = 48;  // in one array: found by counting instructions of replayed traces

  uint64_t count() const { return count_; }

  // REQUIRES: no block has the key.
  void Insert(const Key& key, Block* block) {
    ++count_;
    if (arrays_.empty()) AddArray(0);
    size_t index = std::min(FindArray(key), arrays_.size() - 1);
    if (arrays_[index]->count == kMost) {
      Halve(index);
      if (arrays_[index]->last() < key) ++index;
    }
    Array& array = *arrays_[index];
    Entry* const place = array.LowerBound(key);
    std::copy_backward(place, array.end(), array.end() + 1);
    *place = {key, block};
    ++array.count;
    lasts_[index] = array.last();
  }

  // Whether the block was there.
  bool Erase(const Key& key) {
    const size_t index = FindArray(key);
    if (index == arrays_.size()) return false;
    Array& array = *arrays_[index];
    Entry* const place = array.LowerBound(key);
    if (place == array.end() || key < place->key) return false;
    std::copy(place + 1, array.end(), place);
    --count_;
    if (--array.count > 0) {
      lasts_[index] = array.last();
    } else {
      RemoveArray(index);
    }
    return true;
  }

  // The last entry whose key is not greater; null where all are.
  const Entry* LastUpTo(const Key& key) const {
    const size_t index = FindArray(key);
    if (index < arrays_.size()) {
      const Entry* const found = arrays_[index]->LowerBound(key);
      if (!(key < found->key)) return found;
      if (found != arrays_[index]->begin()) return found - 1;
    }
    return index == 0 ? nullptr : arrays_[index - 1]->end() - 1;
  }

 private:
  struct Array {
    std::array<Entry, kMost> entries;
    size_t count = 0;

    Entry* begin() { return entries.data(); }
    Entry* end() { return entries.data() + count; }
    const Key& last() const { return entries[count - 1].key; }
    Entry* LowerBound(const Key& key) {
      Entry* first = begin();
      for (size_t left = count; left > 0;) {
        const size_t half = left / 2;
        const bool less = first[half].key < key;
        first = less ? first + half + 1 : first;
        left = less ? left - half - 1 : half;
      }
      return first;
    }
  };

  // The first array whose last key is not less; the number of arrays where there is none.
  size_t FindArray(const Key& key) const {
    return static_cast<size_t>(std::lower_bound(lasts_.begin(), lasts_.end(), key) - lasts_.begin());
  }

  void AddArray(size_t index) {
    std::unique_ptr<Array> array = spare_ == nullptr ? std::make_unique<Array>() : std::move(spare_);
    arrays_.insert(arrays_.begin() + static_cast<long>(index), std::move(array));
    lasts_.insert(lasts_.begin() + static_cast<long>(index), Key());
  }

  void RemoveArray(size_t index) {
    spare_ = std::move(arrays_[index]);
    arrays_.erase(arrays_.begin() + static_cast<long>(index));
    lasts_.erase(lasts_.begin() + static_cast<long>(index));
  }

  // Moves the upper half to an array of its own.
  void Halve(size_t index) {
    AddArray(index + 1);
    Array& lower = *arrays_[index];
    Array& upper = *arrays_[index + 1];
    constexpr size_t kHalf = kMost / 2;
    std::copy(lower.begin() + kHalf, lower.end(), upper.begin());
    upper.count = kMost - kHalf;
    lower.count = kHalf;
    lasts_[index] = lower.last();
    lasts_[index + 1] = upper.last();
  }

  std::vector<std::unique_ptr<Array>> arrays_;  // none is empty
  std::vector<Key> lasts_;                      // the last key of each
  std::unique_ptr<Array> spare_;                // an array that became empty
  uint64_t count_ = 0;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_LIBRARY_ENGINE_SORTED_BLOCKS_H_
