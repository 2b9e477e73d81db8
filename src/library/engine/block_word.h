// BlockWord: what the fast path knows of a block, in one word that the block's address finds without a lock.
//
// Some blocks may go to a thread's cache: their word has the size class, by how much the class is larger than the
// request, and the lane. Other blocks go back to the pool under its lock: those that other streams used, those of
// symmetric pools, and large ones (these have a LargeWord). Their word has the owner, which tells whose pool that is.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/library/engine/size_classes.h"

namespace commpool::internal::engine {

// The number of a pair of pool and stream: blocks of one lane serve that stream again without a wait. 0 is none.
using Lane = uint32_t;

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

}  // namespace commpool::internal::engine
