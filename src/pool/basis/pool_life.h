// The life of a pool: one state, and the transitions between states by name.
//
//   open --BeginClose--> closing --EndClose--> closed
//   open --BeginSleep--> asleep --EndSleep--> open
//     \------------------ Destroy ------------------> destroyed     (from any of them: the handle has ended)
//     \------------------ Abandon ------------------> abandoned     (from any: the runtime ends)
//
// Any thread.
#ifndef COMMPOOL_SRC_POOL_BASIS_POOL_LIFE_H_
#define COMMPOOL_SRC_POOL_BASIS_POOL_LIFE_H_

#include <atomic>

#include "commpool/status.h"

namespace commpool::internal {

class PoolLife {
 public:
  enum class State {
    kOpen,       // serves
    kAsleep,     // its memory is given back, its addresses and blocks stay
    kClosing,    // serves no more; a close that failed is made again
    kClosed,     // its memory is given back, but for what live blocks hold
    kDestroyed,  // without a handle: segments go as their last block is freed
    kAbandoned,  // the runtime ends: nothing calls the driver any more
  };

  State state() const { return state_.load(std::memory_order_acquire); }
  bool open() const { return state() == State::kOpen; }
  bool destroyed() const { return state() == State::kDestroyed; }
  // Whether close() has done its work, or cannot any more.
  bool closed() const { return state() >= State::kClosed; }

  bool asleep() const { return state() == State::kAsleep; }

  // kFailedPrecondition where the pool serves no more, or sleeps.
  Status CheckOpen() const;

  // Nothing where it does not serve, or does not sleep: others end pools meanwhile.
  void BeginSleep() { Replace(State::kOpen, State::kAsleep); }
  void EndSleep() { Replace(State::kAsleep, State::kOpen); }
  void BeginClose() { Advance(State::kClosing); }
  void EndClose() { Advance(State::kClosed); }
  void Destroy() { Advance(State::kDestroyed); }
  void Abandon() { Advance(State::kAbandoned); }

 private:
  void Replace(State from, State to) { state_.compare_exchange_strong(from, to, std::memory_order_acq_rel); }
  // Never backwards: a pool that is destroyed while it closes stays destroyed.
  void Advance(State to);

  std::atomic<State> state_{State::kOpen};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_POOL_LIFE_H_
