// BlockMap: finds the word of a block by the block's address, without a lock. A runtime has one, for the blocks of all
// its pools; every free asks it first.
//
// Small blocks have a word for each unit of 512 bytes, in a radix tree of three levels. Large blocks have one word for
// each MiB, because no two of them begin in the same MiB. These words lie close together: among the words of small
// blocks, each large block at a new place would touch a new page of the host, which costs more than the rest of its
// allocation.
//
// Readers take no lock. They can do so because the map makes a node when the first block begins in it, and keeps it as
// long as the map lives. The system gives memory to a node's pages when a block begins there: at most 1 MiB for each 64
// MiB of device memory. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/library/base/mutex.h"
#include "src/library/engine/block_word.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

class BlockMap {
 public:
  ~BlockMap();

  // The word of a small block that begins at the address. Null where no block ever began near it, or the address is no
  // multiple of the unit.
  AtomicWord* Find(Address address) const {
    if (address % kClassUnit != 0 || address >> kAddressBits != 0) return nullptr;
    const Node* const node = top_[address >> kTopShift].load(std::memory_order_acquire);
    if (node == nullptr) return nullptr;
    Leaf* const leaf = node->leaves[LeafPlaceOf(address)].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr : &(*leaf)[PlaceOf(address)];
  }

  // The LargeWord of the MiB that holds the address; null where no block ever began near it.
  AtomicWord* FindLarge(Address address) const {
    if (address >> kAddressBits != 0) return nullptr;
    Node* const node = top_[address >> kTopShift].load(std::memory_order_acquire);
    return node == nullptr ? nullptr : &node->large[(address >> kLargeShift) & (kLargeSize - 1)];
  }

  // Find and FindLarge, but a missing word is made. Null for addresses beyond 57 bits (no GPU has them), for addresses
  // that Find has no words for, and where the system has no addresses left: blocks there take the slow path.
  AtomicWord* Make(Address address) {
    AtomicWord* const word = Find(address);
    return word != nullptr ? word : MakeLeaf(address);
  }
  AtomicWord* MakeLarge(Address address) {
    AtomicWord* const word = FindLarge(address);
    return word != nullptr ? word : MakeNode(address);
  }

 private:
  static constexpr int kAddressBits = 57;
  static constexpr int kUnitShift = 9;    // 512 bytes
  static constexpr int kLargeShift = 20;  // 1 MiB: large blocks are larger
  static constexpr int kLeafShift = 26;   // 64 MiB
  static constexpr int kTopShift = 42;    // 4 TiB
  static constexpr uint64_t kLeafSize = uint64_t{1} << (kLeafShift - kUnitShift);
  static constexpr uint64_t kLeaves = uint64_t{1} << (kTopShift - kLeafShift);
  static constexpr uint64_t kLargeSize = uint64_t{1} << (kTopShift - kLargeShift);
  static constexpr uint64_t kTopSize = uint64_t{1} << (kAddressBits - kTopShift);
  static_assert(kSmallBytes >> kLargeShift == 1);

  using Leaf = std::array<AtomicWord, kLeafSize>;  // the small blocks of 64 MiB
  // What lies in 4 TiB of addresses.
  struct Node {
    std::array<std::atomic<Leaf*>, kLeaves> leaves;
    std::array<AtomicWord, kLargeSize> large;
  };

  static uint64_t LeafPlaceOf(Address address) { return (address >> kLeafShift) & (kLeaves - 1); }
  // Spreads the words of neighbouring blocks: threads whose blocks touch would otherwise share cache lines (a sixth of
  // the pairs that 8 threads made on an H200's host). An odd factor permutes the places of a leaf.
  static uint64_t PlaceOf(Address address) { return ((address >> kUnitShift) * 81007) & (kLeafSize - 1); }

  [[gnu::cold]] AtomicWord* MakeLeaf(Address address);
  [[gnu::cold]] AtomicWord* MakeNode(Address address);
  // Null where the system has no addresses left.
  Node* NodeOf(Address address) COMMPOOL_REQUIRES(mutex_);
  // Zeroed pages; the system gives them memory when they are touched.
  void* MapPages(uint64_t bytes) COMMPOOL_REQUIRES(mutex_);

  std::array<std::atomic<Node*>, kTopSize> top_ = {};
  Mutex mutex_{LockRank::kLeaf};
  std::vector<std::pair<void*, uint64_t>> mapped_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::engine
