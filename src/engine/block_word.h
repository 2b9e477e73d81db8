// BlockWord: what the fast path knows of a block, in one word that the block's address finds without a lock.
//
// The word of a block that a thread's cache may keep has its size class, how much less was asked for, and its lane. The
// word of a block that only the pool's lock may free has its owner: blocks that other streams used, those of symmetric
// pools, and large ones (with another kind of word).
#ifndef COMMPOOL_SRC_ENGINE_BLOCK_WORD_H_
#define COMMPOOL_SRC_ENGINE_BLOCK_WORD_H_

#include <atomic>
#include <cstdint>

#include "src/engine/size_classes.h"

namespace commpool::internal::engine {

// One pool's memory as one stream sees it. 0 is none.
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
    return CacheableWithSlack(lane, size_class, ClassBytes(size_class) - requested);
  }
  // The same as a word without slack, but for that.
  constexpr BlockWord WithSlack(uint64_t slack) const { return BlockWord(bits_ | slack << 12); }
  // `slack`: by how much the class is larger than what was asked for.
  static constexpr BlockWord CacheableWithSlack(Lane lane, SizeClass size_class, uint64_t slack) {
    return BlockWord(static_cast<uint64_t>(State::kCacheable) | uint64_t{size_class} << 2 | slack << 12 |
                     uint64_t{lane} << 32);
  }
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

  // The same block, in a cache.
  constexpr BlockWord Cached() const {
    return BlockWord((bits_ & ~uint64_t{3}) | static_cast<uint64_t>(State::kCached));
  }

 private:
  uint64_t bits_ = 0;  // state 2, then class 10, slack 20, lane 32; or owner 62
};

// LargeWord: the word of the large block that begins in a MiB of addresses. Only its pool takes the block back.
class LargeWord {
 public:
  constexpr LargeWord() = default;
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

#endif  // COMMPOOL_SRC_ENGINE_BLOCK_WORD_H_
