// Calls of an engine that property tests and fuzzer share, and the state for them. Without a test framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/library/engine/block.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

inline std::vector<StreamKey> StreamsOf(const std::vector<MissingFence>& missing) {
  std::vector<StreamKey> streams;
  for (const MissingFence& fence : missing) streams.push_back(fence.stream);
  return streams;
}

// The fence of the stream that the block's last free misses; one of no free where it misses none.
template <typename Engine>
MissingFence MissingOf(const Engine& engine, Address address, StreamKey stream) {
  MissingFence missing{address, stream, kNoMoment};
  const Block* const block = engine.heap().Find(address);
  for (const Use& use : block == nullptr ? Uses() : block->uses) {
    if (use.stream == stream && use.fence_missing()) missing.freed_at = use.missing_since;
  }
  return missing;
}

// Fences that frees asked for and no stream has got yet.
class MissingFences {
 public:
  struct Attached {
    MissingFence missing;
    Fence fence = kNoFence;
  };

  bool empty() const { return missing_.empty(); }
  size_t size() const { return missing_.size(); }
  // The fence attached last; kNoFence before the first.
  Fence last() const { return last_; }

  void Add(const std::vector<MissingFence>& missing) {
    missing_.insert(missing_.end(), missing.begin(), missing.end());
  }

  // Attaches a new fence for the one at `place`.
  template <typename Engine>
  Attached Attach(Engine& engine, uint64_t place) {
    const Attached attached{missing_.at(place), ++last_};
    missing_.erase(missing_.begin() + static_cast<int64_t>(place));
    engine.AttachFence(attached.missing, attached.fence);
    return attached;
  }

 private:
  std::vector<MissingFence> missing_;
  Fence last_ = kNoFence;
};

template <typename Engine>
void RemoveIdleSegments(Engine& engine) {
  for (const SegmentIndex segment : engine.WhollyFreeSegments()) {
    if (engine.IsIdle(segment)) engine.RemoveSegment(segment);
  }
}

}  // namespace commpool::internal::engine
