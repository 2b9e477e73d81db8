// PoolLife: the state of a pool. Each transition has a name.
//
//   open --BeginClose--> closing --EndClose--> closed
//   open --BeginSleep--> asleep --EndSleep--> open
//     \------------------ Destroy ------------------> destroyed     (from any of them: the handle has ended)
//     \------------------ Abandon ------------------> abandoned     (from any: the runtime ends)
//
// Any thread.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_BASIS_POOL_LIFE_H_
#define COMMPOOL_SRC_LIBRARY_POOL_BASIS_POOL_LIFE_H_

#include <atomic>

#include "commpool/status.h"

namespace commpool::internal {

// PoolBasis owns one. Calls of the pool change the state; everybody asks it. One atomic, so it needs no lock. A state
// that was read may be over by the next line. So growth and grants read it under the growth lock, which a sleep and the
// end of a pool take after their transition.
class PoolLife {
 public:
  // In the order towards a pool's end, because Advance compares them.
  enum class State {
    kOpen,       // serves
    kAsleep,     // its memory is given back, its addresses and blocks stay
    kClosing,    // serves no more; a close that failed may be repeated
    kClosed,     // its memory is given back, except for segments with live blocks
    kDestroyed,  // has no handle: a segment goes when its last block is freed
    kAbandoned,  // the runtime ends: nobody calls the driver any more
  };

  State state() const { return state_.load(std::memory_order_acquire); }
  bool open() const { return state() == State::kOpen; }
  bool destroyed() const { return state() == State::kDestroyed; }
  // Whether close() is done, or no longer possible.
  bool closed() const { return state() >= State::kClosed; }

  bool asleep() const { return state() == State::kAsleep; }

  // kFailedPrecondition where the pool sleeps or no longer serves.
  Status CheckOpen() const {
    switch (state()) {
      case State::kOpen:
        return Status();
      case State::kAsleep:
        return Status(StatusCode::kFailedPrecondition, "is asleep: wake() it first");
      case State::kClosing:
      case State::kClosed:
        return Status(StatusCode::kFailedPrecondition, "is closed");
      case State::kDestroyed:
        return Status(StatusCode::kFailedPrecondition, "is closed: it was destroyed");
      case State::kAbandoned:
        return Status(StatusCode::kFailedPrecondition, "is closed: the runtime has ended");
    }
    return Status();
  }

  // Does nothing in another state: another thread may end the pool meanwhile.
  void BeginSleep() { Replace(State::kOpen, State::kAsleep); }
  void EndSleep() { Replace(State::kAsleep, State::kOpen); }
  void BeginClose() { Advance(State::kClosing); }
  void EndClose() { Advance(State::kClosed); }
  void Destroy() { Advance(State::kDestroyed); }
  void Abandon() { Advance(State::kAbandoned); }

 private:
  // For sleep alone, which the pool's end may overtake.
  void Replace(State from, State to) { state_.compare_exchange_strong(from, to, std::memory_order_acq_rel); }
  // Moves only forwards: a pool that is destroyed while it closes stays destroyed.
  void Advance(State to) {
    State now = state();
    while (now < to && !state_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
    }
  }

  std::atomic<State> state_{State::kOpen};
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_BASIS_POOL_LIFE_H_
