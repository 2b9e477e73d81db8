// The page map of the fast path: from the address of a block to its word, without a lock.
//
// A radix tree of three levels over 512-byte units. Reading takes no lock and is right at any time: nodes are never
// given back while the map lives. Its memory is virtual until a block begins there: at most 1 MiB for each 64 MiB of
// device memory. Any thread.
#ifndef COMMPOOL_SRC_ENGINE_BLOCK_MAP_H_
#define COMMPOOL_SRC_ENGINE_BLOCK_MAP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/mutex.h"
#include "src/engine/block_word.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

class BlockMap {
 public:
  BlockMap() = default;
  ~BlockMap();
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  // The word of a block that begins at the address; null where no segment was ever added near it, or the address is no
  // multiple of the unit.
  AtomicWord* Find(Address address) const {
    if (address % kClassUnit != 0 || address >> kAddressBits != 0) return nullptr;
    const Middle* const middle = top_[address >> kTopShift].load(std::memory_order_acquire);
    if (middle == nullptr) return nullptr;
    Leaf* const leaf = (*middle)[(address >> kLeafShift) & (kMiddleSize - 1)].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr : &(*leaf)[PlaceOf(address)];
  }

  // Makes the words of a range. Addresses beyond 57 bits, which no GPU has, get none: their blocks take the slow path.
  void Cover(const SegmentRange& range);

 private:
  static constexpr int kAddressBits = 57;
  static constexpr int kUnitShift = 9;   // 512 bytes
  static constexpr int kLeafShift = 26;  // 64 MiB
  static constexpr int kTopShift = 42;   // 4 TiB
  static constexpr uint64_t kLeafSize = uint64_t{1} << (kLeafShift - kUnitShift);
  static constexpr uint64_t kMiddleSize = uint64_t{1} << (kTopShift - kLeafShift);
  static constexpr uint64_t kTopSize = uint64_t{1} << (kAddressBits - kTopShift);

  using Leaf = std::array<AtomicWord, kLeafSize>;
  using Middle = std::array<std::atomic<Leaf*>, kMiddleSize>;

  // Words of neighbouring blocks lie far apart: threads whose blocks touch would otherwise share cache lines (a sixth
  // of the pairs that 8 threads made on an H200's host). An odd factor permutes the places of a leaf.
  static uint64_t PlaceOf(Address address) { return ((address >> kUnitShift) * 81007) & (kLeafSize - 1); }

  // REQUIRES: its middle node is there.
  std::atomic<Leaf*>& LeafAt(Address leaf_index) {
    Middle* const middle = top_[leaf_index >> (kTopShift - kLeafShift)].load(std::memory_order_relaxed);
    return (*middle)[leaf_index & (kMiddleSize - 1)];
  }
  // Zeroed pages that the system backs when they are touched.
  void* MapPages(uint64_t bytes) COMMPOOL_REQUIRES(mutex_);

  std::array<std::atomic<Middle*>, kTopSize> top_ = {};
  Mutex mutex_{LockRank::kLeaf};
  std::vector<std::pair<void*, uint64_t>> mapped_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_BLOCK_MAP_H_
