// The large block of a pool that its program frees and asks for again in turn. While nothing else happens in the pool
// it comes and goes without the pool's lock: the engine hears of it at its next call.
//
// A block that was just freed and served again is offered here. From then on its free (GiveBack) and the next request
// of the very size on its stream (TakeAgain) are one atomic exchange each. Every other call of the engine ends that
// first (End), counts what came and went, and frees the block where it was given back last: so the books are those of
// the same calls made one by one.
//
// Offer and End: under the pool's lock. All others: any thread, without it. An object may outlive its engine, whose end
// ends it.
#ifndef COMMPOOL_SRC_ENGINE_REPEATED_BLOCK_H_
#define COMMPOOL_SRC_ENGINE_REPEATED_BLOCK_H_

#include <atomic>
#include <cstdint>

#include "src/engine/types.h"

namespace commpool::internal::engine {

class alignas(64) RepeatedBlock {
 public:
  // The block, live again; 0 where none is here that suits.
  Address TakeAgain(uint64_t requested, StreamKey stream) {
    uint64_t turn = turn_.load(std::memory_order_acquire);
    if ((turn & (kNone | kGivenBack)) != kGivenBack) return 0;
    if (requested_.load(std::memory_order_relaxed) != requested) return 0;
    if (stream_.load(std::memory_order_relaxed) != stream) return 0;
    // Read before the exchange, which fails where another block was offered since.
    const Address address = address_.load(std::memory_order_relaxed);
    return turn_.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel) ? address : 0;
  }

  // Whether the block is here, was live, and is free now.
  bool GiveBack(Address address) {
    uint64_t turn = turn_.load(std::memory_order_acquire);
    if ((turn & (kNone | kGivenBack)) != 0 || address_.load(std::memory_order_relaxed) != address) return false;
    return turn_.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel);
  }

  // A live block. REQUIRES: none is here.
  void Offer(Address address, uint64_t requested, StreamKey stream) {
    address_.store(address, std::memory_order_relaxed);
    requested_.store(requested, std::memory_order_relaxed);
    stream_.store(stream, std::memory_order_relaxed);
    // Turns only rise: what somebody has read of an earlier block does not pass for this one's.
    first_ = ((turn_.load(std::memory_order_relaxed) & ~kNone) | kGivenBack) + 1;
    turn_.store(first_, std::memory_order_release);
  }

  struct Ended {
    Address address = 0;
    uint64_t times = 0;  // that the block was taken again
    bool free = false;   // given back since
  };
  // None is here any more. REQUIRES: one was.
  Ended End() {
    const uint64_t turn = turn_.fetch_or(kNone, std::memory_order_acq_rel);
    return {address_.load(std::memory_order_relaxed), (turn - first_) / 2, (turn & kGivenBack) != 0};
  }

 private:
  // A turn counts changes of hands: even while the block is live.
  static constexpr uint64_t kGivenBack = 1;
  static constexpr uint64_t kNone = uint64_t{1} << 63;

  std::atomic<uint64_t> turn_{kNone};
  std::atomic<Address> address_{0};
  std::atomic<uint64_t> requested_{0};
  std::atomic<StreamKey> stream_{0};
  uint64_t first_ = 0;  // the turn of the offer
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_REPEATED_BLOCK_H_
