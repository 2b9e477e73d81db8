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
#include "src/library/engine/size_classes.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// The number of a pair of pool and stream: blocks of one lane serve that stream again without a wait. 0 is none.
using Lane = uint32_t;

// What the fast path knows of a block, in one word that the block's address finds without a lock.
//
// Some blocks may go to a thread's cache: their word has the size class, by how much the class is larger than the
// request, and the lane. Other blocks go back to the pool under its lock: those that other streams used, those of
// symmetric pools, and large ones (these have a LargeWord). Their word has the owner, which tells whose pool that is.
class BlockWord {
 public:
  enum class State : uint8_t {
    kNone = 0,       // no block begins here
    kCacheable = 1,  // live; a thread's cache may take it back
    kCached = 2,     // in a thread's cache
    kLive = 3,       // live; the pool takes it back
  };

  constexpr BlockWord() = default;
  constexpr explicit BlockWord(uint64_t bits) : bits_(bits) {}

  // REQUIRES: requested <= ClassBytes(size_class).
  static constexpr BlockWord Cacheable(Lane lane, SizeClass size_class, uint64_t requested) {
    return BlockWord(static_cast<uint64_t>(State::kCacheable) | uint64_t{size_class} << 2 | uint64_t{lane} << 32)
        .WithSlack(ClassBytes(size_class) - requested);
  }
  // This word with a slack: by how many bytes the class is larger than the request. REQUIRES: it has none yet.
  constexpr BlockWord WithSlack(uint64_t slack) const { return BlockWord(bits_ | slack << 12); }
  // `owner`: the block's owner, a number of at most 62 bits; 0 where unknown.
  static constexpr BlockWord Live(uint64_t owner = 0) {
    return BlockWord(static_cast<uint64_t>(State::kLive) | owner << 2);
  }

  constexpr State state() const { return static_cast<State>(bits_ & 3); }
  // For a kLive word.
  constexpr uint64_t owner() const { return bits_ >> 2; }
  constexpr SizeClass size_class() const { return static_cast<SizeClass>(bits_ >> 2) & 0x3ff; }
  constexpr Lane lane() const { return static_cast<Lane>(bits_ >> 32); }
  constexpr uint64_t slack() const { return (bits_ >> 12) & 0xfffff; }
  constexpr uint64_t requested() const { return ClassBytes(size_class()) - slack(); }
  constexpr uint64_t bits() const { return bits_; }

  // The word of the same block while it lies in a cache.
  constexpr BlockWord Cached() const {
    return BlockWord((bits_ & ~uint64_t{3}) | static_cast<uint64_t>(State::kCached));
  }

 private:
  uint64_t bits_ = 0;  // state 2, then class 10, slack 20, lane 32; or owner 62
};

// LargeWord: the word of the large block that begins in a MiB of addresses. No thread's cache takes such a block, so
// the word has no class and no lane.
class LargeWord {
 public:
  constexpr explicit LargeWord(uint64_t bits) : bits_(bits) {}

  // `owner`: the block's owner, a number of at most 43 bits; 0 where unknown.
  static constexpr LargeWord Live(uint64_t address, uint64_t owner) {
    return LargeWord(PlaceOf(address) | owner << kOwnerShift);
  }

  // Whether the block is live and begins at the address, which lies in the word's MiB.
  constexpr bool IsOf(uint64_t address) const {
    return (bits_ & ((uint64_t{1} << kOwnerShift) - 1)) == PlaceOf(address);
  }
  constexpr uint64_t owner() const { return bits_ >> kOwnerShift; }
  constexpr uint64_t bits() const { return bits_; }

 private:
  static constexpr int kOwnerShift = 21;
  static constexpr uint64_t PlaceOf(uint64_t address) { return 1 | (address & (kSmallBytes - 1)) << 1; }

  uint64_t bits_ = 0;  // live 1, then place in the MiB 20, owner 43
};

// A word as threads share it.
using AtomicWord = std::atomic<uint64_t>;

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
  // The node or leaf of the place, made where there is none: zeroed pages, which the system gives memory when they are
  // touched. Null where the system has no addresses left.
  template <typename Pages>
  Pages* MadeAt(std::atomic<Pages*>& place) COMMPOOL_REQUIRES(mutex_);

  std::array<std::atomic<Node*>, kTopSize> top_ = {};
  Mutex mutex_{LockRank::kLeaf};
  std::vector<std::pair<void*, uint64_t>> mapped_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal::engine
