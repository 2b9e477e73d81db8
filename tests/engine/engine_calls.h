// Calls of an engine that property tests and fuzzer share, and the state for them. Without a test framework.
#ifndef COMMPOOL_TESTS_ENGINE_ENGINE_CALLS_H_
#define COMMPOOL_TESTS_ENGINE_ENGINE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// Fences that frees asked for and no stream has got yet.
class MissingFences {
 public:
  struct Attached {
    Address address = 0;
    StreamKey stream = 0;
    Fence fence = kNoFence;
  };

  bool empty() const { return missing_.empty(); }
  size_t size() const { return missing_.size(); }
  // The fence attached last; kNoFence before the first.
  Fence last() const { return last_; }

  void Add(Address address, const std::vector<StreamKey>& streams) {
    for (const StreamKey stream : streams) missing_.push_back({address, stream});
  }

  // Attaches a new fence for the one at `place`.
  template <typename Engine>
  Attached Attach(Engine& engine, uint64_t place) {
    Attached attached = missing_.at(place);
    missing_.erase(missing_.begin() + static_cast<int64_t>(place));
    attached.fence = ++last_;
    engine.AttachFence(attached.address, attached.stream, attached.fence);
    return attached;
  }

 private:
  std::vector<Attached> missing_;
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
