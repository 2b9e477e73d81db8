// Decides what a scope catches and what it hands on. Both the library's own scopes and those that PyTorch carries to
// the threads of a backward() (src/torch) use it. The adapter is compiled where PyTorch is installed, so this
// header needs the C ABI alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "commpool/commpool.h"

namespace commpool::internal {

// The sizes that a scope catches, both ends included. ScopeTable::Begin has checked that `least` is not above `most`.
struct SizeRange {
  uint64_t least = 0;
  uint64_t most = UINT64_MAX;

  // One comparison: below `least` the difference wraps round.
  bool Has(uint64_t bytes) const { return bytes - least <= most - least; }  // REQUIRES: least <= most

  // Keeps the sizes that lie on the same side of both ends of `other` as `bytes`. REQUIRES: bytes is in.
  void Narrow(const SizeRange& other, uint64_t bytes) {
    if (bytes < other.least) {
      most = std::min(most, other.least - 1);
    } else if (bytes > other.most) {
      least = std::max(least, other.most + 1);
    } else {
      least = std::max(least, other.least);
      most = std::min(most, other.most);
    }
  }
};

// What happens to a request when the scope's pool has no memory. The values of the C ABI, so that a plan crosses it
// without a table.
enum class Exhaustion { kError = COMMPOOL_EXHAUSTION_ERROR, kNextScope = COMMPOOL_EXHAUSTION_NEXT_SCOPE };

// What one scope catches, and for which pool. By handle: a scope keeps no pool alive, and finds an error where the pool
// was destroyed.
struct ScopePlan {
  commpool_pool pool = 0;
  SizeRange sizes = {};
  int device = 0;  // the pool's device
  Exhaustion exhaustion = Exhaustion::kError;

  bool Catches(int asked_device, uint64_t bytes) const { return device == asked_device && sizes.Has(bytes); }
};

// A request on its way from the scope begun last to the scopes further out. Runtime::Allocate makes one for each
// request. PyTorch's router makes one for the scopes that it carries.
class WayOut {
 public:
  // Whether the request skips the scope's pool. A pool of this rank hands a request on when its memory is short, which
  // may differ from rank to rank. Such a request must not reach a symmetric pool, whose ranks allocate alike (rule 4).
  bool PassesBy(bool symmetric) const { return symmetric && rank_local_; }

  // Whether a request that the scope's pool could not serve goes on to the next scope out. Remembers whether a pool of
  // this rank alone did so.
  bool HandsOn(Exhaustion exhaustion, bool symmetric, commpool_status failure) {
    const bool short_of_memory = failure == COMMPOOL_OUT_OF_MEMORY || failure == COMMPOOL_EXHAUSTED;
    // Other failures do not go on: an invalid request or a lost device is the program's to know.
    if (exhaustion == Exhaustion::kError || !short_of_memory) return false;
    rank_local_ = rank_local_ || !symmetric;
    return true;
  }

 private:
  // Whether a pool that is not symmetric has handed the request on: other ranks may never see it.
  bool rank_local_ = false;
};

}  // namespace commpool::internal
