#include "src/pool/basis/pool_life.h"

namespace commpool::internal {

Status PoolLife::CheckOpen() const {
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

void PoolLife::Advance(State to) {
  State now = state();
  while (now < to && !state_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
  }
}

}  // namespace commpool::internal
