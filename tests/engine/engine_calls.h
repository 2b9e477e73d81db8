// Calls of an engine that property tests and fuzzer share, and the state for them. Without a test framework.
#ifndef COMMPOOL_TESTS_ENGINE_ENGINE_CALLS_H_
#define COMMPOOL_TESTS_ENGINE_ENGINE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/engine/types.h"

namespace commpool::internal::engine {

// Fences that frees asked for and no stream has got yet.
class OwedFences {
 public:
  struct Attached {
    Address address = 0;
    StreamKey stream = 0;
    Fence fence = kNoFence;
  };

  bool empty() const { return owed_.empty(); }
  size_t size() const { return owed_.size(); }
  // The fence attached last; kNoFence before the first.
  Fence last() const { return last_; }

  void Owe(Address address, const ReservedVector<StreamKey>& streams) {
    for (const StreamKey stream : streams) owed_.push_back({address, stream});
  }

  // Attaches a new fence for the debt at `place`.
  template <typename Engine>
  Attached Attach(Engine& engine, uint64_t place) {
    Attached paid = owed_.at(place);
    owed_.erase(owed_.begin() + static_cast<int64_t>(place));
    paid.fence = ++last_;
    engine.AttachFence(paid.address, paid.stream, paid.fence);
    return paid;
  }

 private:
  std::vector<Attached> owed_;
  Fence last_ = kNoFence;
};

template <typename Engine>
void RemoveIdleSegments(Engine& engine) {
  for (const SegmentIndex segment : engine.WhollyFreeSegments()) {
    if (engine.IsIdle(segment)) engine.RemoveSegment(segment);
  }
}

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_TESTS_ENGINE_ENGINE_CALLS_H_
